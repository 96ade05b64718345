package tokenizer

import "unicode"

// Classes of characters as Hugging Face's tokenizers tell them. That library knows punctuation and marks of Unicode 8,
// numbers and letters of Unicode 16, where Go knows Unicode 15; texts that were written before 2016 agree.

func isPunct(r rune) bool {
	return unicode.IsPunct(r) || isASCIIPunct(r)
}

// isASCIIPunct is a character of Python's string.punctuation.
func isASCIIPunct(r rune) bool {
	return r > ' ' && r < 0x7f && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// isOther is a character of categories Cc, Cf and Co that is not white space for BERT.
func isOther(r rune) bool {
	return r != '\t' && r != '\n' && r != '\r' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// isWord is \w of Rust's regular expressions.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.In(r, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic,
		unicode.Join_Control)
}

// isIdeograph is a Chinese character for BERT, which writes the fifth range in this way.
func isIdeograph(r rune) bool {
	for _, span := range [][2]rune{{0x4e00, 0x9fff}, {0x3400, 0x4dbf}, {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
		{0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff}, {0x2f800, 0x2fa1f}} {
		if r >= span[0] && r <= span[1] {
			return true
		}
	}
	return false
}

// lower writes each character by itself in lower case: a sigma at the end of a word is like any other.
func lower(r rune) string {
	if r == 'İ' {
		return "i̇"
	}
	return string(unicode.ToLower(r))
}
