package methods

import (
	"errors"
	"fmt"
	"slices"

	"promptfed/federation/method"
)

// Averages tells how clients count in the mean that a stack's server makes, where that mean is all it needs of a
// round's uploads: it may then get one upload that holds it, of the client method.Summed. beside are prefixes of what
// is uploaded under PREFIX/NAME for each shared parameter, and averaged with them. The error says which layer needs
// what else.
func Averages(m method.Method) (weighting string, beside []string, err error) {
	if len(SharedNames(m)) == 0 {
		return "", nil, errors.New("the base method shares nothing; there is nothing to average")
	}
	mean := method.ByExamples
	for ; m != nil; m = inside(m) {
		switch t := method.TraitsOf(m); {
		case t.Needs != "":
			return "", nil, fmt.Errorf("%s needs %s", nameOf(m), t.Needs)
		case t.Mean == "":
			return "", nil, fmt.Errorf("%s needs more of a client than its share of a mean", nameOf(m))
		default:
			if t.Mean == method.Uniform {
				mean = t.Mean
			}
			if t.Beside != "" {
				beside = append(beside, t.Beside)
			}
		}
	}
	return string(mean), beside, nil
}

// Surveyed names the surveys that a stack's clients answer, in the first rounds or later. Answers are no part of the
// mean.
func Surveyed(m method.Method) []string {
	var out []string
	for round := range 2 {
		for _, q := range m.Surveys(round) {
			if !slices.Contains(out, q.Name) {
				out = append(out, q.Name)
			}
		}
	}
	return out
}

// HidesClients tells whether a stack hides single clients: nothing measured on one of them may be told, and its server
// can make a round of no uploads, as Poisson sampling draws them.
func HidesClients(m method.Method) bool {
	return anyLayer(m, func(l method.Method) bool { return method.TraitsOf(l).HidesClients })
}

// NeedsSynthetic tells whether a stack makes no sense without images of the server's own.
func NeedsSynthetic(m method.Method) bool {
	return anyLayer(m, func(l method.Method) bool { return method.TraitsOf(l).Synthetic })
}
