package methods_test

import (
	"maps"
	"strings"
	"testing"

	"promptfed/federation/methods"
)

// Invalid options are refused when the method is built, and a class without attributes before the run starts.
func TestFedMVPRefuses(t *testing.T) {
	some := maps.Clone(traits)
	some["ant"] = []string{"six legs"}
	for want, o := range map[string]options{
		"give all classes the same number":   {"attributes": some},
		"attributes and templates are empty": {"templates": []string{}},
	} {
		if _, err := methods.Build("fedmvp", nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", o, err, want)
		}
	}
	some = maps.Clone(traits)
	delete(some, "ant")
	fitting["fedmvp"] = options{"attributes": some}
	defer delete(fitting, "fedmvp")
	if err := stack("fedmvp"); err == nil || !strings.Contains(err.Error(), `have none for class "ant"`) {
		t.Errorf("%v", err)
	}
	fitting["fedmvp"] = options{"heads": 3}
	if err := stack("fedmvp"); err == nil || !strings.Contains(err.Error(), "heads is 3; it must divide the image "+
		"tower's width 4") {
		t.Errorf("%v", err)
	}
}
