package methods

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/text/personalized"
	"promptfed/federation/methods/wrappers/robust"
	"promptfed/federation/methods/wrappers/uploads"
)

// AveragedUploads returns how clients count in the server's mean, for a stack whose server needs nothing but that mean
// of a round's uploads. Its server may get the mean as one upload of the client method.AggregatedClient. beside are the
// prefixes of tensors PREFIX/NAME that are uploaded for each shared parameter and averaged with it. For other stacks
// the error names the layer and what it needs.
func AveragedUploads(base method.Method) (weighting string, beside []string, err error) {
	if len(layer.SharedNames(base)) == 0 {
		return "", nil, errors.New("the base method shares nothing, so there is nothing to average")
	}

	if err = layer.RequireMean(base); err != nil {
		return "", nil, err
	}

	beside, err = prefixes(base)
	return aggregate.Examples.Above(base).Weighting, beside, err
}

// CheckBuffered returns an error that says why a stack cannot run under FedBuff. FedBuff's server averages updates of
// clients that started from different rounds, and needs nothing else of them.
func CheckBuffered(base method.Method) error {
	_, beside, err := AveragedUploads(base)
	switch {
	case err != nil:
		return fmt.Errorf("FedBuff averages uploads only, but %w; set buffer: 0", err)
	case len(beside) > 0:
		return fmt.Errorf("clients also upload %s, for which FedBuff has no staleness weights; set buffer: 0",
			strings.Join(beside, " and "))
	case len(StatisticNames(base)) > 0:
		return fmt.Errorf("clients answer the statistics %s before they train, which needs rounds; set buffer: 0",
			strings.Join(StatisticNames(base), " and "))
	case HidesClients(base):
		return errors.New("the epsilon of differential privacy assumes clients drawn for each round; set buffer: 0")
	}

	for l := range method.Layers(base) {
		for _, role := range []method.Role{method.DriftCorrection, method.RoundStart} {
			if _, has := method.PropertiesOf(l).Roles[role]; has {
				return fmt.Errorf("%s has to %s, and FedBuff has no rounds; set buffer: 0", layer.NameOf(l), role)
			}
		}
	}

	return nil
}

// prefixes returns the prefixes of tensors PREFIX/NAME that clients upload for each shared parameter. Any other tensor
// beside the shared parameters is an error: it cannot be averaged.
func prefixes(m method.Method) ([]string, error) {
	shared := layer.SharedNames(m)
	count := map[string]int{}
	for _, e := range m.Extras(layer.PlaceholderClient) {
		prefix, longest := "", 0
		for _, name := range shared {
			if p, ok := strings.CutSuffix(e.Name, "/"+name); ok && len(name) > longest {
				prefix, longest = p, len(name)
			}
		}
		if longest == 0 {
			return nil, fmt.Errorf("clients upload %s, which cannot be averaged", e.Name)
		}
		count[prefix]++
	}

	out := slices.Sorted(maps.Keys(count))
	for _, prefix := range out {
		if count[prefix] != len(shared) {
			return nil, fmt.Errorf("clients upload %s for only some shared parameters, which cannot be averaged",
				prefix)
		}
	}

	return out, nil
}

// StatisticNames returns the names of the statistics that a stack's clients compute in some round. The server's mean
// does not contain them.
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

// InactiveTerms returns a line for each part of a stack whose delay is at least the number of rounds.
func InactiveTerms(m method.Method, rounds int) []string {
	var out []string
	for l := range method.Layers(m) {
		for _, d := range method.PropertiesOf(l).Delays {
			if d.Rounds >= rounds {
				out = append(out, fmt.Sprintf("%s never acts: option %s leaves it out of the first %d rounds, and the "+
					"run has %d; lower it, or raise train.rounds", d.Part, d.Option, d.Rounds, rounds))
			}
		}
	}

	return out
}

// texts returns a text of the properties of each layer that has one, outer to inner.
func texts(m method.Method, text func(method.Properties) string) (out []string) {
	for l := range method.Layers(m) {
		if t := text(method.PropertiesOf(l)); t != "" {
			out = append(out, t)
		}
	}
	return out
}

// Notes returns what a user must know about the layers of a stack before a run.
func Notes(m method.Method) []string {
	return texts(m, func(p method.Properties) string { return p.Note })
}

// HidesClients reports whether a stack hides single clients: nothing measured on one client may be published, and a
// round may have no uploads, as Poisson sampling may draw nobody.
func HidesClients(m method.Method) bool {
	return method.Any(m, func(p method.Properties) bool { return p.HidesClients })
}

// RobustLayer returns the layer of robust aggregation of a stack, if it has one.
func RobustLayer(m method.Method) (robust.Robust, bool) { return layer.Of[robust.Robust](m) }

// DPLayer returns the layer of differential privacy of a stack, and whether it is on; it is always the outermost layer.
func DPLayer(m method.Method) (uploads.DP, bool) {
	d, has := layer.Of[uploads.DP](m)
	return d, has && d.On()
}

// EpsilonLocal returns the epsilon of that many rounds against those who see a client's private parameters, infinite
// where nothing bounds it. It returns false where private parameters are trained without noise.
func EpsilonLocal(m method.Method, rounds int) (float64, bool) {
	d, has := layer.Of[personalized.DPFPL](m)
	if !has || d.Noise == 0 {
		return 0, false
	}
	return d.Epsilon(rounds), true
}

// AddsNoise reports whether a layer of a stack adds noise of differential privacy.
func AddsNoise(m method.Method) bool {
	return method.Any(m, func(p method.Properties) bool { return p.Noise })
}

// NeedsSynthetic reports whether a stack needs training images on the server.
func NeedsSynthetic(m method.Method) bool {
	return method.Any(m, func(p method.Properties) bool { return p.Synthetic })
}

// Reproduces lists the options of a method and its wrappers that make a known defect of published code again on
// purpose, outer to inner.
func Reproduces(m method.Method) []string {
	return texts(m, func(p method.Properties) string { return p.Reproduces })
}
