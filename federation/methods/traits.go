package methods

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	for l := m; l != nil; l = inside(l) {
		switch t := method.TraitsOf(l); {
		case t.Needs != "":
			return "", nil, fmt.Errorf("%s needs %s", nameOf(l), t.Needs)
		case t.Mean == "":
			return "", nil, fmt.Errorf("%s needs more of a client than its share of a mean", nameOf(l))
		case t.Mean == method.Uniform:
			mean = t.Mean
		}
	}
	beside, err = prefixes(m)
	return string(mean), beside, err
}

// prefixes gives those of what a stack's clients upload under PREFIX/NAME for each shared parameter; anything else is
// no part of a mean.
func prefixes(m method.Method) ([]string, error) {
	shared := SharedNames(m)
	count := map[string]int{}
	for _, e := range m.Extras(anywhere) {
		prefix, longest := "", 0
		for _, name := range shared {
			if p, ok := strings.CutSuffix(e.Name, "/"+name); ok && len(name) > longest {
				prefix, longest = p, len(name)
			}
		}
		if longest == 0 {
			return nil, fmt.Errorf("clients upload %s, which is no part of the mean", e.Name)
		}
		count[prefix]++
	}
	out := slices.Sorted(maps.Keys(count))
	for _, prefix := range out {
		if count[prefix] != len(shared) {
			return nil, fmt.Errorf("clients upload %s of some shared parameters alone, which is no part of the mean",
				prefix)
		}
	}
	return out, nil
}

// StatisticNames names the statistics that a stack's clients compute, in the first rounds or later. They are no part of
// the mean.
func StatisticNames(m method.Method) []string {
	var out []string
	for round := range 2 {
		for _, q := range m.Statistics(round) {
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

// AddsNoise tells whether a layer of a stack adds noise of differential privacy.
func AddsNoise(m method.Method) bool {
	return anyLayer(m, func(l method.Method) bool { return method.TraitsOf(l).Noise })
}

// NeedsSynthetic tells whether a stack makes no sense without images of the server's own.
func NeedsSynthetic(m method.Method) bool {
	return anyLayer(m, func(l method.Method) bool { return method.TraitsOf(l).Synthetic })
}
