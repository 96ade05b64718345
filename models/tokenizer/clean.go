package tokenizer

import (
	"html"
	"regexp"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
)

// Clean is what happens to a text before it is cut into words, in the order of
// the published code: repair, HTML entities undone twice, white space
// collapsed, lower case.
//
// The published code repairs with the Python library ftfy. Done here: entities,
// typographic quotes made straight, Latin ligatures split, full-width and
// half-width forms made ordinary, stray Windows-1252 bytes decoded, terminal
// escapes and control characters removed, Unicode composed (NFC). Not done: text that was decoded with the
// wrong character set (mojibake) stays as it is.
func Clean(text string) string {
	text = repair(text)
	text = html.UnescapeString(html.UnescapeString(text))
	text = strings.Join(strings.Fields(text), " ")
	return cases.Lower(language.Und).String(text)
}

var (
	entity         = regexp.MustCompile(`&#?[0-9A-Za-z]{1,24};`)
	terminalEscape = regexp.MustCompile(`\x1b\[[0-9;]*[a-zA-Z]`)
)

// maxRepairs bounds the passes of repair: nested entities need one pass a level.
const maxRepairs = 8

// repair repeats its fixes until they change nothing. Entities stay where the
// text holds a "<", for then it may be HTML on purpose.
func repair(text string) string {
	entities := !strings.Contains(text, "<")
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

// unescapeWhole leaves an entity alone when only a prefix of its name is known.
// An unknown name in capitals is the capital of the small one, as in &NTILDE;.
func unescapeWhole(s string) string {
	if u := html.UnescapeString(s); !strings.HasSuffix(u, ";") {
		return u
	}
	if s == strings.ToUpper(s) {
		if u := html.UnescapeString(strings.ToLower(s)); !strings.HasSuffix(u, ";") {
			return strings.ToUpper(u)
		}
	}
	return s
}

func fixRune(b *strings.Builder, r rune) {
	switch {
	case r >= 0x80 && r <= 0x9f: // Windows-1252 that was read as Latin-1
		b.WriteRune(charmap.Windows1252.DecodeByte(byte(r)))
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
