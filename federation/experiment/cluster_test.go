package experiment

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/goldentest"
)

// compatibility returns the compatibility of a machine that opens a configuration as a worker does.
func compatibility(t *testing.T, c Config) spec.Compatibility {
	t.Helper()
	c.Data.Root = ""
	c, err := c.CheckShared()
	if err != nil {
		t.Fatal(err)
	}
	b, err := opened(OpenWorker(t.Context(), c, nil))
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Compatibility(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A worker with the run's configuration is compatible with the run, though the server's own images and secure
// aggregation stay with the run. A worker with other data, another partition or another training is not compatible.
func TestCompatibility(t *testing.T) {
	c := smallConfig("promptfl")
	c.Data.Classes = "base"
	c.Synthetic = Synthetic{Config: c.Data.Config, Epochs: 1}
	c.Synthetic.Generator = sets.Generator{Classes: []string{"circle", "square"}, Train: 1, Test: 1, Size: 32}
	c.SecureAggregation.Threshold = 0.6
	run := open(t, c)
	if run.Experiment.Synthetic == nil || run.Experiment.Secure == "" {
		t.Fatal("the run has no images of its own, or no secure aggregation")
	}
	want, err := run.Compatibility(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	cache := func(c *Config) { c.Runtime.Cache = run.Task.Protocol.Config.Runtime.Cache }
	plain := run.Task.Protocol.Config.Shared()
	t.Setenv("XDG_CACHE_HOME", filepath.Dir(run.Task.Protocol.Config.Runtime.Cache))
	if err := want.Mismatch(compatibility(t, plain)); err != nil {
		t.Error(err)
	}
	for word, change := range map[string]func(*Config){
		"evaluation set base: ": func(c *Config) { c.Data.Seed++ },
		"partition: ":           func(c *Config) { c.Partition.Kind = "dirichlet"; c.Partition.Beta = 0.5 },
		"training: ":            func(c *Config) { c.Train.LR = 1 },
		"method: ":              func(c *Config) { c.With = []string{"fedprox"} },
	} {
		other := run.Task.Protocol.Config.Shared()
		cache(&other)
		change(&other)
		if err := want.Mismatch(compatibility(t, other)); err == nil || !strings.HasPrefix(err.Error(), word) {
			t.Errorf("%q: %v", word, err)
		}
	}
	plain.Backbones = []string{"../" + plain.Backbones[0]}
	_, err = plain.CheckShared()
	goldentest.WantError(t, err, "path")
}

// TestCompatibilityOfSimulatedTime: simulated time stays with the run as well.
func TestCompatibilityOfSimulatedTime(t *testing.T) {
	c := smallConfig("promptfl")
	c.SimulatedTime.Speeds, c.SimulatedTime.FedBuff.Buffer = "lognormal", 2
	run := open(t, c)
	want, err := run.Compatibility(context.Background())
	if err != nil || run.Experiment.SimulatedTime == nil || run.Task.Protocol.Config.Shared().SimulatedTime.Enabled() {
		t.Fatalf("%v; %v", err, run.Task.Protocol.Config.Shared().SimulatedTime)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Dir(run.Task.Protocol.Config.Runtime.Cache))
	if err := want.Mismatch(compatibility(t, run.Task.Protocol.Config.Shared())); err != nil {
		t.Error(err)
	}
}

// Lists of images that differ in the pixels of one image have different digests, in any folder.
func TestContent(t *testing.T) {
	list := func() []data.Example {
		s, err := sets.Open(sets.Config{Set: "synthetic",
			Generator: sets.Generator{Classes: []string{"circle", "star"}, Train: 8, Test: 1, Size: 16}})
		if err != nil {
			t.Fatal(err)
		}
		return s.Train
	}
	sum := func(l []data.Example) string {
		contents, err := data.ContentHashes(context.Background(), l, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range contents {
			l[i].ContentHash = c
		}
		return inOrder(l)
	}
	want := sum(list())
	for i := range list() {
		swapped := list()
		swapped[i].Load = swapped[(i+1)%len(swapped)].Load
		if sum(swapped) == want {
			t.Errorf("other pixels of image %d change nothing", i)
		}
	}
	if sum(list()) != want || sum(list()[1:]) == want {
		t.Error("digests do not tell lists apart by what is in them")
	}
}
