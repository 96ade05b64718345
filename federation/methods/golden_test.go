package methods_test

import (
	stdcontext "context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// TestPyTorch compares every traced number of two rounds of three clients with tools/golden/methods.py, which computes
// them in PyTorch from the formulas of the papers and of the toy.
func TestPyTorch(t *testing.T) {
	var golden struct {
		Cases []struct {
			Method  string
			With    []string
			Options map[string]any
			Train   struct {
				Epochs       int
				LR, Momentum float64
				WeightDecay  float64 `json:"weight_decay"`
				Schedule     string
			}
		}
	}
	b, err := os.ReadFile("testdata/methods.json")
	if err == nil {
		err = json.Unmarshal(b, &golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := safetensors.ReadFile("testdata/methods.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, c := range golden.Cases {
		m, err := methods.Build(c.Method, c.With, c.Options)
		if err != nil {
			t.Fatal(err)
		}
		clients := methodtest.Clients(9, 5, 6)
		for _, client := range clients {
			client.Train = methodtest.InOrder{Features: client.Train.(*engine.Features)}
		}
		rec := engine.NewRecorder()
		_, err = engine.Run(stdcontext.Background(), &engine.Experiment{Method: methodtest.Pinned{Method: m, First: first(c.Options)},
			Classes: methodtest.Classes, Clients: clients, Plan: engine.Plan{Rounds: 2, TestEvery: 1},
			Training: engine.Training{Epochs: c.Train.Epochs, Batch: 4,
				Optim:    optim.Config{Name: "sgd", LR: c.Train.LR, Momentum: c.Train.Momentum, WeightDecay: c.Train.WeightDecay},
				Schedule: optim.Schedule{Kind: c.Train.Schedule, TMax: 10}}}, engine.Settings{Workers: 2, Tracer: rec})
		if err != nil {
			t.Fatal(err)
		}
		label := fmt.Sprintf("case %d, %s%v%v", i, c.Method, c.With, c.Options)
		worst = max(worst, compare(t, label, rec.Tensors, want[fmt.Sprintf("%02d", i)]))
	}
	t.Logf("largest difference %.2g of the largest value of its tensor", worst)
}

// first are the first values that tools/golden/methods.py gives to everything that is drawn at random elsewhere.
func first(o map[string]any) tensor.Map {
	n := func(name string, missing int) int {
		if v, ok := o[name].(float64); ok {
			return int(v)
		}
		return missing
	}
	out := tensor.Map{}
	for name, at := range map[string]struct{ salt, rows, cols int }{
		"ctx": {10, n("tokens", 16), 6}, "global": {11, n("global_tokens", 16), 6},
		"c0/ctx": {10, n("tokens", 16), 6}, "c1/ctx": {11, n("tokens", 16), 6}, "c2/ctx": {12, n("tokens", 16), 6},
		"fedappr/w1": {20, 6, n("hidden", 8)}, "fedappr/w2": {21, n("hidden", 8), 1},
	} {
		out[name] = methodtest.Values(at.salt, 0.6, at.rows, at.cols)
	}
	if lengths, ok := o["local_tokens"].([]any); ok {
		for k := range 3 {
			out[fmt.Sprintf("c%d/local", k)] = methodtest.Values(12+k, 0.6, int(lengths[k%len(lengths)].(float64)), 6)
		}
	}
	return out
}

// compare gives the largest difference, each relative to the largest value of its tensor or to 1e-2.
func compare(t *testing.T, label string, got tensor.Map, want *tensor.Tensor) float64 {
	t.Helper()
	at, worst := 0, 0.0
	for _, name := range got.Names() {
		last := name[strings.LastIndex(name, "/")+1:]
		if last == "image" || last == "patches" || last == "label" {
			continue
		}
		part := got[name]
		if at+part.Len() > want.Len() {
			t.Fatalf("%s: the trace has more numbers than the %d of the witness, from %s on", label, want.Len(), name)
		}
		scale := max(1e-2, tensor.Of(want.Data[at:at+part.Len()], part.Len()).MaxAbs())
		for i, v := range part.Data {
			diff := math.Abs(float64(v)-float64(want.Data[at+i])) / scale
			worst = max(worst, diff)
			if !(diff <= 1e-5) {
				t.Errorf("%s: %s at element %d is %g, PyTorch gives %g", label, name, i, v, want.Data[at+i])
				break
			}
		}
		at += part.Len()
	}
	if at != want.Len() {
		t.Errorf("%s: the trace has %d numbers, the witness %d", label, at, want.Len())
	}
	return worst
}
