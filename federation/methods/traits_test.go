package methods

import (
	"strings"
	"testing"

	"promptfed/federation/method"
)

// telling states that the mean is enough, and uploads more.
type telling struct {
	PromptFL
	extras []method.Extra
}

func (m telling) Extras(method.Task) []method.Extra { return m.extras }

// TestBuffers: FedBuff takes stacks whose server needs a mean of what is shared alone, and says what others need.
func TestBuffers(t *testing.T) {
	for _, c := range []struct {
		base, with, fail string
	}{
		{"promptfl", "", ""}, {"maple", "", ""}, {"promptfl", "fedprox", ""}, {"promptfl", "fedopt", ""},
		{"promptfl", "ditto", ""}, {"ivlp", "fedper", ""},
		{"promptfl", "scaffold", "scaffold/dc"}, {"promptfl", "feddyn", "feddyn has to correct client drift"},
		{"promptfl", "fednova", "every client's amount of work"}, {"promptfl", "fedamp", "every client's own"},
		{"coop", "", "shares nothing"}, {"promptfl", "ggtpc", "ggtpc"},
	} {
		var with []string
		if c.with != "" {
			with = []string{c.with}
		}
		m, err := Build(c.base, with, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := Buffers(m); c.fail == "" && err != nil || c.fail != "" && (err == nil ||
			!strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%s %s: %v, want %q", c.base, c.with, err, c.fail)
		}
	}
}

// A statement that a mean is enough does not cover what clients upload beside it, but for a tensor for each shared
// parameter.
func TestMeanCoversNoOtherUploads(t *testing.T) {
	base := promptFLOf(defaultContext)
	for _, c := range []struct {
		extras       []string
		beside, fail string
	}{
		{nil, "", ""}, {[]string{"change/ctx"}, "change", ""}, {[]string{"a/ctx", "b/ctx"}, "a b", ""},
		{[]string{"length"}, "", "clients upload length"}, {[]string{"a/ctx", "a/other"}, "", "clients upload a/other"},
	} {
		m := telling{PromptFL: base}
		for _, name := range c.extras {
			m.extras = append(m.extras, method.Extra{Name: name})
		}
		_, beside, err := Averages(m)
		if c.fail == "" && (err != nil || strings.Join(beside, " ") != c.beside) ||
			c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%q: beside %q, %v", c.extras, beside, err)
		}
	}
}
