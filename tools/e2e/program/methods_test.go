package program

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/methods"
	"promptfed/runtime/goldentest"
)

// configs/methods has a configuration for every method and wrapper, and all of them are correct.
func TestMethodConfigs(t *testing.T) {
	files, err := filepath.Glob("../../../configs/methods/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no configurations", err)
	}
	used := map[string]bool{}
	for _, path := range files {
		conf, err := configs.Open(path, nil)
		if err == nil {
			err = conf.Check()
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if name := strings.TrimSuffix(filepath.Base(path), ".yaml"); conf.Name != name {
			t.Errorf("%s is named %s", path, conf.Name)
		}
		if _, err := methods.Build(conf.Method, conf.With, conf.Options); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, m := range append(slices.Clone(conf.With), conf.Method) {
			used[m] = true
		}
	}
	for _, e := range methods.Table() {
		if !used[e.Name] {
			t.Errorf("no configuration uses %s", e.Name)
		}
	}
}

// The means over seeds are those of the single runs.
func TestSeeds(t *testing.T) {
	dir := setup(t)
	conf := filepath.Join(dir, "small.yaml")
	out := mustRun(t, "run", conf, "--set", "train.rounds=2", "--seeds", "1,2", "--out", filepath.Join(dir, "both"))
	var values []float64
	for _, seed := range []string{"1", "2"} {
		var s struct{ Last float64 }
		goldentest.ReadJSON(t, filepath.Join(dir, "both", "seed-"+seed, "summary.json"), &s)
		values = append(values, s.Last)
	}
	mean, std := metrics.Mean(values), metrics.Deviation(values)
	std *= math.Sqrt2 // the sample deviation of two values
	if want := fmt.Sprintf("small  %.2f ± %.2f", 100*mean, 100*std); !strings.Contains(out, want) {
		t.Errorf("want a line with %q:\n%s", want, out)
	}
}
