package wire

import (
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// A status of any bytes is fit for a terminal or refused.
func FuzzStatus(f *testing.F) {
	b := goldentest.JSON(f, Status{Name: "\x1b[2J", Clients: []ClientStatus{{Domain: "a\nb", Reason: "\r"}}})
	f.Add(b)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ReadStatus(text)
		if err != nil {
			return
		}
		texts := []string{s.Name, s.Run, s.Kind, s.Set, s.Statistic}
		for _, c := range s.Clients {
			texts = append(texts, c.Doing, c.Backbone, c.Domain, c.Reason)
		}
		for _, text := range texts {
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Fatalf("%q", text)
			}
		}
	})
}
