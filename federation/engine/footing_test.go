package engine_test

import (
	"strings"
	"testing"

	"promptfed/federation/engine"
)

func TestFootingDiffers(t *testing.T) {
	e := toy(t)
	base := func() engine.Footing {
		return engine.Footing{Program: "1", Fingerprint: e.Fingerprint(), Terms: e.Terms(),
			Digests: map[string]string{"backbone a": "abc", "data": "def"}}
	}
	if err := base().Differs(base()); err != nil {
		t.Error(err)
	}
	for word, change := range map[string]func(*engine.Footing){
		"program: ":     func(f *engine.Footing) { f.Program = "2" },
		"seed: ":        func(f *engine.Footing) { f.Terms.Seed++ },
		"backbone a: ":  func(f *engine.Footing) { f.Digests["backbone a"] = "abd" },
		"data: ":        func(f *engine.Footing) { delete(f.Digests, "data") },
		"fingerprint: ": func(f *engine.Footing) { f.Fingerprint = "0" },
	} {
		worker := base()
		change(&worker)
		if err := base().Differs(worker); err == nil || !strings.HasPrefix(err.Error(), word) {
			t.Errorf("%q: %v", word, err)
		}
	}
}
