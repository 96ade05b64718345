package methods_test

import (
	"maps"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
)

// Invalid options are refused when the method is built, and a class without attributes before the run starts. A class
// with capitals has the attributes of its name without them.
func TestFedMVPRefuses(t *testing.T) {
	some := maps.Clone(traits)
	some["ant"] = []string{"six legs"}
	for want, o := range map[string]options{
		"give all classes the same number":   {"attributes": some},
		"attributes and templates are empty": {"templates": []string{}},
	} {
		_, err := methods.Build("fedmvp", nil, o)
		goldentest.WantError(t, err, want)
	}
	some = maps.Clone(traits)
	delete(some, "ant")
	fitting["fedmvp"] = options{"attributes": some}
	defer delete(fitting, "fedmvp")
	goldentest.WantError(t, stack("fedmvp"), `have none for class "ant"`)
	fitting["fedmvp"], methodtest.Classes[0] = options{"attributes": traits}, "Ant"
	defer func() { methodtest.Classes[0] = "ant" }()
	goldentest.NoError(t, stack("fedmvp"))
	fitting["fedmvp"] = options{"heads": 3}
	goldentest.WantError(t, stack("fedmvp"), "heads is 3; it must divide the image tower's width 4")
}
