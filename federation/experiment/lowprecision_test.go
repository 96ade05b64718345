package experiment

import (
	"os"
	"strconv"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort"
)

// TestAccuracyInLowPrecision logs the accuracies of docs/performance.md for PRECISION_SEEDS seeds: the demo's task with
// products of each precision, emulated on the CPU. Image features are those of float32.
func TestAccuracyInLowPrecision(t *testing.T) {
	seeds, err := strconv.Atoi(os.Getenv("PRECISION_SEEDS"))
	if err != nil {
		t.Skip("PRECISION_SEEDS is not a number of seeds")
	}
	lower := ort.LowerPrecision
	ort.LowerPrecision = onnxtest.LowerConstants
	defer func() { ort.LowerPrecision = lower }()
	for _, method := range []string{"promptfl", "fedpha", "maple"} {
		for _, precision := range []string{ort.Float32, ort.Float16, ort.BFloat16} {
			for seed := range seeds {
				c := smallConfig(method)
				c.Seed, c.Backbones, c.Options = uint64(seed+1), []string{"tiny-vit-b16"}, map[string]any{"tokens": 4}
				if method == "fedpha" {
					c.Options = nil
				}
				g := &c.Data.Generator
				g.Classes, g.Domains, g.Train, g.Test, g.Difficulty = nil, []string{"neon"}, 16, 24, 0.35
				c.Partition.Kind, c.Partition.Clients, c.Partition.Beta = "dirichlet", 8, 0.3
				c.Train.Rounds, c.Train.Epochs, c.Train.Batch, c.Eval.Every = 10, 1, 32, 10
				b := open(t, c)
				set := b.Settings()
				set.Client.Session.Bind, set.Client.Session.Precision, set.Client.DeviceGraphs = true, precision, true
				r := enginetest.Run(t, b.Experiment, set)
				b.Close()
				t.Logf("%s %s seed %d: %.2f", method, precision, seed+1, 100**r.Summary.Personal)
			}
		}
	}
}
