package methods_test

import (
	"maps"
	"slices"
	"sync"
	"testing"

	adaptersgroup "promptfed/federation/methods/adapters"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/image"
	"promptfed/federation/methods/multimodal"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/text/averaged"
	"promptfed/federation/methods/text/personalized"
)

// roundedByFamily returns a function that returns Case.Rounded of a base method. At the end of the test, it logs the
// median, the 95th percentile and the maximum of each family of methods and precision, as rows of docs/performance.md.
func roundedByFamily(t *testing.T) func(base string) func(precision string, difference float64) {
	families := map[string][]layer.Def{"text, averaged": averaged.Methods, "text, personalized": personalized.Methods,
		"image": image.Methods, "text and image": multimodal.Methods, "adapters": adaptersgroup.Methods,
		"a file of ONNX": fromfile.Methods}
	var mu sync.Mutex
	all := map[string][]float64{}
	t.Cleanup(func() {
		for _, row := range slices.Sorted(maps.Keys(all)) {
			d := all[row]
			slices.Sort(d)
			t.Logf("| %s | %d | %.1e | %.1e | %.1e |", row, len(d), d[len(d)/2], d[len(d)*19/20], d[len(d)-1])
		}
	})
	return func(base string) func(precision string, difference float64) {
		return func(precision string, difference float64) {
			mu.Lock()
			defer mu.Unlock()
			for family, defs := range families {
				if slices.ContainsFunc(defs, func(d layer.Def) bool { return d.Name == base }) {
					row := family + " | " + precision
					all[row] = append(all[row], difference)
				}
			}
		}
	}
}
