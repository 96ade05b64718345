package methods_test

import (
	"fmt"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
)

// withCleanImages returns the names of a stack that draws the clean images.
func withCleanImages(n methodtest.Names) methodtest.Names {
	n.Draw = append([]string{"trusted"}, n.Draw...)
	return n
}

func init() {
	noGCE := options{"q": 0.0}
	cases = append(cases,
		methodtest.Case{Name: "promptfl", With: []string{"gce"}, Options: short, Zero: noGCE, Names: context},
		methodtest.Case{Name: "fedpha", With: []string{"gce"}, Options: with(exactNull, options{"q": 1.0}), Zero: noGCE,
			Names: two},
		methodtest.Case{Name: "promptfl", With: []string{"fedntd", "gce"}, Options: short, Zero: noGCE, Names: context},
		methodtest.Case{Name: "promptfl", With: []string{"nlprompt"}, Options: short, Names: withCleanImages(context)},
		methodtest.Case{Name: "fedpha", With: []string{"nlprompt"}, Options: with(exactNull, options{
			"masses": "labels"}), Names: withCleanImages(two)},
	)
}

// A stack has one label loss. A base method with a label loss of its own keeps it.
func TestLabelLoss(t *testing.T) {
	for say, c := range map[string]struct {
		base string
		with []string
	}{
		"nlprompt: the methods inside fit":   {"promptfl", []string{"gce", "nlprompt"}},
		"learns nothing":                     {"zeroshot", []string{"gce"}},
		"gce: the methods inside fit":        {"fedtpg", []string{"gce"}},
		"gce: the methods inside fit labels": {"fedlora", []string{"gce"}},
	} {
		_, err := methods.Build(c.base, c.with, nil)
		goldentest.WantErrorOf(t, fmt.Sprint(c.with, " over ", c.base), err, say)
	}
}
