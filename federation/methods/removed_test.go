package methods

import (
	"strings"
	"testing"
)

// An option that was removed takes its former default alone, in both ways to write it, and is no option any more.
func TestRemovedOptions(t *testing.T) {
	for name, r := range removedOptions {
		method, option, _ := strings.Cut(name, ".")
		d, err := Find(method)
		if err != nil || !d.Wrapper() && HasOption(method, nil, option) {
			t.Errorf("%s: the method is missing or has the option", name)
			continue
		}
		base, with := method, []string(nil)
		if d.Wrapper() {
			base, with = "promptfl", []string{method}
		}
		for value, fine := range map[string]bool{r.Was: true, "other": false} {
			for _, options := range []map[string]any{{option: value}, {method: map[string]any{option: value}}} {
				_, err := Build(base, with, options)
				refusal := "options." + option + " of " + method + " was removed: " + r.Instead
				said := err != nil && strings.Contains(err.Error(), refusal)
				if said == fine {
					t.Errorf("%v: %v", options, err)
				}
			}
		}
	}
}
