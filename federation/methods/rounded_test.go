package methods_test

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"sync"
	"testing"

	"promptfed/federation/methods"
	"promptfed/runtime/goldentest"
)

// roundedByFamily returns a function that returns Case.Rounded of a base method. At the end of the test, it logs the
// number of parameters, the median, the 95th percentile and the maximum of each family of methods and precision, as
// rows of docs/performance.md. A family is a folder of methods.
func roundedByFamily(t *testing.T) func(base string) func(precision string, difference float64) {
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
		def, err := methods.Find(base)
		goldentest.NoError(t, err)
		family := path.Base(reflect.TypeOf(def.Default).PkgPath())
		return func(precision string, difference float64) {
			mu.Lock()
			defer mu.Unlock()
			row := family + " | " + precision
			all[row] = append(all[row], difference)
		}
	}
}
