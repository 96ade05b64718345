package methods_test

import (
	"math"
	"strings"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
)

// dividing are the names of a stack that draws which images are clean.
func dividing(n methodtest.Names) methodtest.Names {
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
		methodtest.Case{Name: "promptfl", With: []string{"nlprompt"}, Options: short, Names: dividing(context)},
		methodtest.Case{Name: "fedpha", With: []string{"nlprompt"}, Options: with(exactNull, options{"score": "code",
			"masses": "labels"}), Names: dividing(two)},
	)
	// Both clients have p = 1/2 for their label at the prompt 0, where the slopes of cross entropy are -0.8 and 0.6.
	// The slope of (1-p^q)/q is p^q times that.
	zero := options{"tokens": 1, "init_std": 0}
	gce := func(q float64) methodtest.Hand {
		return methodtest.Hand{Method: "promptfl", With: []string{"gce"}, Options: with(zero, options{"q": q}), LR: lr,
			Want: map[string]float64{"r0/c0/s0/loss": (1 - math.Pow(0.5, q)) / q,
				"r0/c0/s0/grad/ctx": -0.8 * math.Pow(0.5, q), "r0/c1/s0/grad/ctx": 0.6 * math.Pow(0.5, q)}}
	}
	// Both classes score alike. Client 0 has one image of class 0, half of whose mass goes to each class; the first of
	// the two counts, so that it is clean. So it is of client 1, whose two images are of class 1 and are not.
	divided := func(masses string, slope1 float64) methodtest.Hand {
		return methodtest.Hand{Method: "promptfl", With: []string{"nlprompt"}, Options: with(zero,
			options{"masses": masses}), LR: lr, Want: map[string]float64{"r0/c0/s0/draw/trusted": 1,
			"r0/c0/s0/loss": math.Log(2), "r0/c0/s0/grad/ctx": -0.8, "r0/c1/s0/grad/ctx": slope1}}
	}
	hands = append(hands, gce(0.5), gce(1), divided("uniform", 0.3), divided("labels", 0.6), divided("owned", 0.6))
}

// A stack has one loss that fits labels, and a base method that fits them by one of its own keeps that.
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
		if _, err := methods.Build(c.base, c.with, nil); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%v over %s: %v", c.with, c.base, err)
		}
	}
}
