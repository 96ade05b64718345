package tokenizer

import (
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
)

// Clean cleans a text before CLIP's own tokenizer splits it into words, in the order of the published code: repair,
// decoding of HTML entities twice, collapsed white space, lower case.
//
// The published code repairs with the Python library ftfy. Implemented here: decoding entities, straightening
// typographic quotes, splitting Latin ligatures, converting full-width and half-width forms, decoding stray
// Windows-1252 bytes, removing terminal escapes and control characters, and composing Unicode (NFC). Not implemented:
// text that was decoded with the wrong character set (mojibake) is unchanged.
func Clean(text string) string { return lowered(collapsed(basic(text))) }

// canonical is the cleaning of big_vision, as in OpenCLIP: before its lower case, underscores become spaces and ASCII
// punctuation is removed.
func canonical(text string) string {
	return collapsed(lowered(strings.Map(func(r rune) rune {
		switch {
		case r == '_':
			return ' '
		case isASCIIPunct(r):
			return -1
		}
		return r
	}, basic(text))))
}

// basic is the first part of all ways of cleaning.
func basic(text string) string { return unescape(unescape(repair(text))) }

// collapsed replaces white space by one plain space, and removes it at the ends. basic leaves none of the separators
// that are white space only in Python, U+001C to U+001F.
func collapsed(text string) string { return strings.Join(strings.Fields(text), " ") }

// lowered is Python's lower case, which has a special case for the sigma at the end of a word.
func lowered(text string) string { return cases.Lower(language.Und).String(text) }

var (
	entity         = regexp.MustCompile(`&#?[0-9A-Za-z]{1,24};`)
	codePoint      = regexp.MustCompile(`&#(?:([0-9]+)|[xX]([0-9A-Fa-f]+));?`)
	terminalEscape = regexp.MustCompile(`\x1b\[[0-9;]*[a-zA-Z]`)
)

// maxRepairs limits the passes of repair: nested entities need one pass per level.
const maxRepairs = 8

// repair repairs the lines of a text. From the first line with a "<" on, it keeps entities, because the text may be
// HTML on purpose.
func repair(text string) string {
	var b strings.Builder
	entities := true
	for line := range strings.Lines(text) {
		entities = entities && !strings.Contains(line, "<")
		b.WriteString(repairLine(line, entities))
	}
	return b.String()
}

// repairLine repeats its fixes until they change nothing.
func repairLine(text string, entities bool) string {
	for range maxRepairs {
		before := text
		if entities {
			text = entity.ReplaceAllStringFunc(text, unescapeWhole)
		}
		text = terminalEscape.ReplaceAllString(text, "")
		if text = norm.NFC.String(mapped(text, fixed)); text == before {
			break
		}
	}

	return text
}

// unescape decodes HTML entities as Python does, which drops control characters and noncharacters given by number.
func unescape(text string) string {
	if !strings.Contains(text, "&#") {
		return html.UnescapeString(text)
	}

	return html.UnescapeString(codePoint.ReplaceAllStringFunc(text, func(reference string) string {
		parts := codePoint.FindStringSubmatch(reference)
		digits, base := parts[1], 10
		if digits == "" {
			digits, base = parts[2], 16
		}
		n, err := strconv.ParseInt(digits, base, 32)
		if r := rune(n); err == nil && (r > 0 && r <= 0x7f && isControl(r) ||
			unicode.Is(unicode.Noncharacter_Code_Point, r)) {
			return ""
		}
		return reference
	}))
}

// unescapeWhole keeps an entity if only a prefix of its name is known. For an unknown name in capitals, it returns the
// capital of the lower-case name's character, as in &NTILDE;.
func unescapeWhole(reference string) string {
	if u := unescape(reference); !strings.HasSuffix(u, ";") {
		return u
	}

	if reference == strings.ToUpper(reference) {
		if u := unescape(strings.ToLower(reference)); !strings.HasSuffix(u, ";") {
			return strings.ToUpper(u)
		}
	}

	return reference
}

func fixed(character rune) string {
	switch {
	case character >= 0x80 && character <= 0x9f: // Windows-1252 that was decoded as Latin-1
		if known := charmap.Windows1252.DecodeByte(byte(character)); known != utf8.RuneError {
			return string(known)
		}
	case character == 0x02bc || character >= 0x2018 && character <= 0x201b:
		return "'"
	case character >= 0x201c && character <= 0x201f:
		return `"`
	case character == 0x0149: // apostrophe and n as one character
		return "'n"
	case character == 0xfb05: // long s and t: compatibility composition would return a plain s
		return "\u017ft"
	case character == 0x0132 || character == 0x0133 || character >= 0x01c4 && character <= 0x01cc ||
		character >= 0x01f1 && character <= 0x01f3,
		character >= 0xfb00 && character <= 0xfb06, character >= 0xff01 && character <= 0xfff0:
		return norm.NFKC.String(string(character))
	}

	return unless(isControl(character), character)
}

// isControl reports whether a character is invisible and not white space.
func isControl(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\f' && r != '\r' || r == 0x7f ||
		r >= 0x206a && r <= 0x206f || r == 0xfeff || r >= 0xfff9 && r <= 0xfffc
}
