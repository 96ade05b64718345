package methods_test

import (
	stdcontext "context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// golden is one case of tools/golden/methods_GROUP.py.
type golden struct {
	Method  string
	With    []string
	Options map[string]any
	Train   struct {
		Epochs       int
		LR, Momentum float64
		WeightDecay  float64 `json:"weight_decay"`
		Schedule     string
	}
	Alike bool                // all clients have the first backbone
	Terms bool                // each term of the loss is traced too
	Sizes []int               // numbers of examples of each client, if not 9, 5 and 6
	First map[string]struct { // initial values of everything that is otherwise drawn at random
		Salt  int
		Scale float64
		Shape []int
	}
}

// TestPyTorch compares every traced number of two rounds of three clients with tools/golden/methods.py, which computes
// the numbers in PyTorch from the formulas of the papers and of the toy.
func TestPyTorch(t *testing.T) {
	groups, err := filepath.Glob("testdata/*.safetensors")
	if err != nil || len(groups) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, path := range groups {
		path = strings.TrimSuffix(path, ".safetensors")
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			var cases []golden
			b, err := os.ReadFile(path + ".json")
			if err == nil {
				err = json.Unmarshal(b, &cases)
			}
			if err != nil {
				t.Fatal(err)
			}
			want, _, err := safetensors.ReadFile(path + ".safetensors")
			if err != nil {
				t.Fatal(err)
			}
			worst := 0.0
			for i, c := range cases {
				label := fmt.Sprintf("case %d, %s%v%v", i, c.Method, c.With, c.Options)
				worst = max(worst, compare(t, label, c.trace(t), want[fmt.Sprintf("%02d", i)]))
			}
			t.Logf("largest difference %.2g of the largest value of its tensor", worst)
		})
	}
}

// trace runs a case.
func (c golden) trace(t *testing.T) tensor.Map {
	m, err := methods.Build(c.Method, c.With, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	first := tensor.Map{}
	for name, f := range c.First {
		first[name] = methodtest.Values(f.Salt, f.Scale, f.Shape...)
	}
	sizes, toys := c.Sizes, methodtest.Clients
	if len(sizes) == 0 {
		sizes = []int{9, 5, 6}
	}
	if c.Alike {
		toys = methodtest.ClientsOfOneBackbone
	}
	clients := toys(sizes...)
	for _, client := range clients {
		client.Train = methodtest.InOrder{Features: client.Train.(*spec.Features)}
	}
	rec := trace.NewRecorder()
	_, err = engine.Run(stdcontext.Background(), &spec.Experiment{Method: methodtest.Pinned{Method: m, First: first},
		Classes: methodtest.Classes, Template: "a photo of a {}.", Clients: clients, Plan: spec.Plan{Rounds: 2,
			TestEvery: 1},
		Training: spec.Training{Epochs: c.Train.Epochs, Batch: 4,
			Optim: optim.Config{Name: "sgd", LR: c.Train.LR, Momentum: c.Train.Momentum,
				WeightDecay: c.Train.WeightDecay},
			Schedule: optim.Schedule{Kind: c.Train.Schedule, TMax: 10}}},
		engine.Settings{Settings: client.Settings{Tracer: rec, Terms: c.Terms}, Workers: 2})
	if err != nil {
		t.Fatalf("%s%v%v: %v", c.Method, c.With, c.Options, err)
	}
	return rec.Tensors
}

// notCompared matches names of tensors that the PyTorch script names otherwise, or draws by itself.
var notCompared = regexp.MustCompile(`^start/|/grad_raw/|/scalar/|/prepared/|/constant/|/optimizer/|` +
	`/eval/(param|received|before|down|kept|scalar|client)/|draw/(dpfpl|dp|mvp|compress|attack)/|` +
	`/draw/(text|image)/drawn`)

// compare returns the largest difference, each relative to the largest value of its tensor or to 1e-2. The gradient of
// a single term is small, a remainder of float32 numbers that nearly cancel, like MOON's cosines: it may differ by
// 2e-4. So may the gradients of pFedMoAP's gate, whose biases do not change the differences between classes.
func compare(t *testing.T, label string, got tensor.Map, want *tensor.Tensor) float64 {
	t.Helper()
	at, worst := 0, 0.0
	for _, name := range got.Names() {
		last := name[strings.LastIndex(name, "/")+1:]
		if last == "label" || last == "image" || slices.Contains(spec.LargeInputs, last) ||
			notCompared.MatchString(name) {
			continue
		}
		part := got[name]
		if at+part.Len() > want.Len() {
			t.Fatalf("%s: the trace has more numbers than the %d of the witness, from %s on", label, want.Len(), name)
		}
		scale, bound := max(1e-2, tensor.Of(want.Data[at:at+part.Len()], part.Len()).MaxAbs()), 1e-5
		if strings.Contains(name, "/term/") {
			scale, bound = max(1e-3, tensor.Of(want.Data[at:at+part.Len()], part.Len()).MaxAbs()), 2e-4
		}
		if strings.Contains(name, "/grad/gate/") {
			bound = 2e-4
		}
		for i, v := range part.Data {
			diff := math.Abs(float64(v)-float64(want.Data[at+i])) / scale
			worst = max(worst, diff)
			if !(diff <= bound) {
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
