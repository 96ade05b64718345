package ort_test

import (
	"runtime"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/numerics"
	"promptfed/runtime/ort"
)

// TestFingerprint checks that a fingerprint names the library, the compilers and the provider that auto resolves to,
// and that it differs with every option that changes bits and with no other.
func TestFingerprint(t *testing.T) {
	build := func(o ort.Options) numerics.Fingerprint {
		t.Helper()
		f, err := o.Fingerprint()
		goldentest.NoError(t, err)
		return f
	}
	base := build(ort.Options{Provider: ort.CPU})
	_, version, err := ort.Library()
	goldentest.NoError(t, err)
	if !strings.HasPrefix(base.Library, version+", ") || !strings.Contains(base.Library, "git-commit-id=") ||
		base.Provider != ort.CPU || !strings.HasPrefix(base.Compilers, runtime.Version()+", C ") || base.Threads != 1 ||
		base.Optimization != "all" || base.Version != numerics.Version {
		t.Errorf("%+v", base)
	}
	for name, o := range map[string]ort.Options{"spinning": {Spinning: true}, "runs": {Runs: 4},
		"no arena": {NoArena: true}, "one thread": {IntraThreads: 1}, "auto": {Provider: ort.Auto}} {
		if o.Provider == "" {
			o.Provider = ort.CPU
		}
		if d := base.Differences(build(o)); len(d) > 0 && build(o).Provider == ort.CPU {
			t.Errorf("%s: %q", name, d)
		}
	}
	for field, o := range map[string]ort.Options{"threads": {IntraThreads: 2}, "prepack": {Prepack: true},
		"optimization": {OptLevel: ort.OptBasic}} {
		o.Provider = ort.CPU
		if d := base.Differences(build(o)); len(d) == 0 || !strings.HasPrefix(d[0], field+": ") {
			t.Errorf("%s: %q", field, d)
		}
	}
	digests := map[string]bool{build(ort.Options{Provider: ort.CPU, Prepack: true}).Digest(): true}
	for _, products := range everyProduct() {
		f := build(ort.Options{Provider: ort.CPU, Prepack: true, Products: products})
		if f.OwnProducts != (products != ort.PlainProducts) || f.Products != products || digests[f.Digest()] {
			t.Errorf("%s products: %+v", products, f)
		}
		digests[f.Digest()] = true
	}
}
