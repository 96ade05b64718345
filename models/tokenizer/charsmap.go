package tokenizer

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/rivo/uniseg"
)

// charsmap is SentencePiece's compiled table of replacements: a double-array trie (Aoe 1989, in the layout of
// darts-clone) of the replaced texts, whose values are offsets of texts that end with a zero byte.
type charsmap struct {
	units []uint32
	texts string
}

// readCharsmap reads the size of the trie in bytes, the trie, and the texts. Empty data replace nothing.
func readCharsmap(data []byte) (charsmap, error) {
	if len(data) == 0 {
		return charsmap{}, nil
	}

	if len(data) < 4 {
		return charsmap{}, errors.New("the table of replacements is cut short")
	}

	n := int(binary.LittleEndian.Uint32(data))
	if data = data[4:]; n%4 != 0 || n > len(data) {
		return charsmap{}, errors.New("the table of replacements is damaged")
	}

	m := charsmap{units: make([]uint32, n/4), texts: string(data[n:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}

	return m, nil
}

// normalize replaces as Hugging Face does: a whole grapheme if it is shorter than 6 bytes and in the table, else each
// character.
func (m charsmap) normalize(s string) string {
	var out strings.Builder
	state := -1
	for s != "" {
		var grapheme string
		grapheme, s, _, state = uniseg.FirstGraphemeClusterInString(s, state)
		if to, ok := m.replace(grapheme); ok && len(grapheme) < 6 {
			out.WriteString(to)
			continue
		}
		for _, r := range grapheme {
			if to, ok := m.replace(string(r)); ok {
				out.WriteString(to)
			} else {
				out.WriteRune(r)
			}
		}
	}

	return out.String()
}

// replace looks up the shortest entry that s begins with.
func (m charsmap) replace(s string) (string, bool) {
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	if len(m.units) == 0 {
		return "", false
	}

	at := offset(m.units[0])
	for i := range len(s) {
		at ^= uint32(s[i])
		if s[i] == 0 || int(at) >= len(m.units) || m.units[at]&(1<<31|0xff) != uint32(s[i]) {
			return "", false
		}

		u := m.units[at]
		if at ^= offset(u); u>>8&1 == 0 {
			continue
		}

		if int(at) >= len(m.units) {
			return "", false
		}

		from := int(m.units[at] & (1<<31 - 1))
		if from > len(m.texts) {
			return "", false
		}

		text, _, _ := strings.Cut(m.texts[from:], "\x00")
		return strings.ToValidUTF8(text, "\ufffd"), true // a file may hold any bytes
	}

	return "", false
}
