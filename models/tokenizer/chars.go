package tokenizer

import "unicode"

// Classes of characters in Hugging Face's tokenizers. That library uses Unicode 8 for punctuation and marks and Unicode
// 16 for numbers and letters, and Go uses Unicode 15; they agree on texts written before 2016.

func isPunct(r rune) bool {
	return unicode.IsPunct(r) || isASCIIPunct(r)
}

// isASCIIPunct reports whether a character is in Python's string.punctuation.
func isASCIIPunct(r rune) bool {
	return r > ' ' && r < 0x7f && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// isOther reports whether a character has category Cc, Cf or Co and is not white space in BERT.
func isOther(r rune) bool {
	return r != '\t' && r != '\n' && r != '\r' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// isWord reports whether a character matches \w of Rust's regular expressions.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.In(r, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic,
		unicode.Join_Control)
}

// isIdeograph reports whether a character is Chinese in BERT's sense; BERT's fifth range is as written here.
func isIdeograph(r rune) bool {
	for _, span := range [][2]rune{{0x4e00, 0x9fff}, {0x3400, 0x4dbf}, {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
		{0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff}, {0x2f800, 0x2fa1f}} {
		if r >= span[0] && r <= span[1] {
			return true
		}
	}
	return false
}

// lower converts each character to lower case separately: a sigma at the end of a word is treated like any other.
func lower(r rune) string {
	if r == 'İ' {
		return "i̇"
	}
	return string(unicode.ToLower(r))
}
