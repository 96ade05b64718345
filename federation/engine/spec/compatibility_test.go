package spec_test

import (
	"strings"
	"testing"

	"promptfed/federation/engine/spec"
)

func TestCompatibilityMismatch(t *testing.T) {
	e := experiment()
	base := func() spec.Compatibility {
		return spec.Compatibility{Program: "1", Fingerprint: e.Fingerprint(), RunSpec: e.RunSpec(),
			Digests: map[string]string{"backbone a": "abc", "data": "def"}}
	}
	if err := base().Mismatch(base()); err != nil {
		t.Error(err)
	}
	for word, change := range map[string]func(*spec.Compatibility){
		"program: ":     func(f *spec.Compatibility) { f.Program = "2" },
		"seed: ":        func(f *spec.Compatibility) { f.RunSpec.Seed++ },
		"backbone a: ":  func(f *spec.Compatibility) { f.Digests["backbone a"] = "abd" },
		"data: ":        func(f *spec.Compatibility) { delete(f.Digests, "data") },
		"fingerprint: ": func(f *spec.Compatibility) { f.Fingerprint = "0" },
	} {
		worker := base()
		change(&worker)
		if err := base().Mismatch(worker); err == nil || !strings.HasPrefix(err.Error(), word) {
			t.Errorf("%q: %v", word, err)
		}
	}
}
