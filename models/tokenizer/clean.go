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

// Clean is what happens to a text before CLIP's own tokenizer cuts it into words,
// in the order of the published code: repair, HTML entities undone twice, white
// space collapsed, lower case.
//
// The published code repairs with the Python library ftfy. Done here: entities,
// typographic quotes made straight, Latin ligatures split, full-width and
// half-width forms made ordinary, stray Windows-1252 bytes decoded, terminal
// escapes and control characters removed, Unicode composed (NFC). Not done: text that was decoded with the
// wrong character set (mojibake) stays as it is.
func Clean(text string) string { return lowered(collapsed(basic(text))) }

// canonical is the cleaning of big_vision, as OpenCLIP has it: in front of its lower case, an underscore becomes a
// space and ASCII punctuation goes.
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

// basic is the part that all ways of cleaning begin with.
func basic(text string) string { return unescape(unescape(repair(text))) }

// collapsed puts one plain space in place of white space, none at the ends. basic leaves none of the separators that
// are white space for Python alone, U+001C to U+001F.
func collapsed(text string) string { return strings.Join(strings.Fields(text), " ") }

// lowered is Python's lower case, which knows the sigma at the end of a word.
func lowered(text string) string { return cases.Lower(language.Und).String(text) }

var (
	entity         = regexp.MustCompile(`&#?[0-9A-Za-z]{1,24};`)
	codePoint      = regexp.MustCompile(`&#(?:([0-9]+)|[xX]([0-9A-Fa-f]+));?`)
	terminalEscape = regexp.MustCompile(`\x1b\[[0-9;]*[a-zA-Z]`)
)

// maxRepairs bounds the passes of repair: nested entities need one pass a level.
const maxRepairs = 8

// repair goes through the lines of a text. From the first one that holds a "<" on, entities stay, for the text may be
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
		var b strings.Builder
		for _, r := range text {
			fixRune(&b, r)
		}
		if text = norm.NFC.String(b.String()); text == before {
			break
		}
	}
	return text
}

// unescape undoes HTML entities as Python does, which drops control characters and noncharacters given by number.
func unescape(text string) string {
	if !strings.Contains(text, "&#") {
		return html.UnescapeString(text)
	}
	return html.UnescapeString(codePoint.ReplaceAllStringFunc(text, func(s string) string {
		parts := codePoint.FindStringSubmatch(s)
		digits, base := parts[1], 10
		if digits == "" {
			digits, base = parts[2], 16
		}
		n, err := strconv.ParseInt(digits, base, 32)
		if r := rune(n); err == nil && (r > 0 && r <= 0x7f && isControl(r) ||
			unicode.Is(unicode.Noncharacter_Code_Point, r)) {
			return ""
		}
		return s
	}))
}

// unescapeWhole leaves an entity alone when only a prefix of its name is known.
// An unknown name in capitals is the capital of the small one, as in &NTILDE;.
func unescapeWhole(s string) string {
	if u := unescape(s); !strings.HasSuffix(u, ";") {
		return u
	}
	if s == strings.ToUpper(s) {
		if u := unescape(strings.ToLower(s)); !strings.HasSuffix(u, ";") {
			return strings.ToUpper(u)
		}
	}
	return s
}

func fixRune(b *strings.Builder, r rune) {
	switch {
	case r >= 0x80 && r <= 0x9f: // Windows-1252 that was read as Latin-1
		if known := charmap.Windows1252.DecodeByte(byte(r)); known != utf8.RuneError {
			r = known
		}
		b.WriteRune(r)
	case r == 0x02bc || r >= 0x2018 && r <= 0x201b:
		b.WriteByte('\'')
	case r >= 0x201c && r <= 0x201f:
		b.WriteByte('"')
	case r == 0x0149: // apostrophe and n in one character
		b.WriteString("'n")
	case r == 0xfb05: // long s and t: compatibility composition would make it a plain s
		b.WriteString("\u017ft")
	case r == 0x0132 || r == 0x0133 || r >= 0x01c4 && r <= 0x01cc || r >= 0x01f1 && r <= 0x01f3,
		r >= 0xfb00 && r <= 0xfb06, r >= 0xff01 && r <= 0xfff0:
		b.WriteString(norm.NFKC.String(string(r)))
	case isControl(r):
	default:
		b.WriteRune(r)
	}
}

// isControl reports characters that show nothing and are not white space.
func isControl(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\f' && r != '\r' || r == 0x7f ||
		r >= 0x206a && r <= 0x206f || r == 0xfeff || r >= 0xfff9 && r <= 0xfffc
}
