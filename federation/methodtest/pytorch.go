package methodtest

import (
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
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/goldentest"
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

// PyTorch compares every traced number of two rounds of three clients with tools/golden/methods.py, which computes the
// numbers in PyTorch from the formulas of the papers and of the toy. It runs the cases whose innermost wrapper, or else
// base method, is one of defs, and stops at the first case that differs.
func PyTorch(t *testing.T, defs []layer.Def) {
	groups, _ := filepath.Glob(filepath.Join(goldentest.Module(t), "federation/methods/testdata/*.safetensors"))
	ran := 0
	for _, path := range groups {
		var cases []golden
		b, err := os.ReadFile(strings.TrimSuffix(path, "safetensors") + "json")
		if err == nil {
			err = json.Unmarshal(b, &cases)
		}

		goldentest.NoError(t, err)

		var want tensor.Map
		for i, golden := range cases {
			name := append(golden.With, golden.Method)[0]
			if !slices.ContainsFunc(defs, func(d layer.Def) bool { return d.Name == name }) {
				continue
			}

			if want == nil {
				if want, _, err = safetensors.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}

			ran++
			compare(t, fmt.Sprintf("%s %02d, %s%v%v", filepath.Base(path), i, golden.Method, golden.With,
				golden.Options), golden.trace(t), want[fmt.Sprintf("%02d", i)])

			if t.Failed() {
				return
			}
		}
	}

	if ran == 0 {
		t.Errorf("%d files of cases have none of this package", len(groups))
	}
}

// trace runs a case.
func (c golden) trace(t *testing.T) tensor.Map {
	first := tensor.Map{}
	for name, f := range c.First {
		first[name] = Values(f.Salt, f.Scale, f.Shape...)
	}

	sizes := c.Sizes
	if len(sizes) == 0 {
		sizes = []int{9, 5, 6}
	}

	toys := clients(c.Alike, sizes...)
	for _, toy := range toys {
		toy.Train = InOrder{Features: toy.Train.(*spec.Features)}
	}

	_, rec := traced(t, &spec.Experiment{Method: Pinned{Build(t, c.Method, c.With, c.Options), first},
		Classes: Classes, Template: "a photo of a {}.", Clients: toys, Plan: spec.Plan{Rounds: 2, TestEvery: 1},
		Training: spec.Training{Epochs: c.Train.Epochs, Batch: 4,
			Optim: optim.Config{Name: "sgd", LR: c.Train.LR, Momentum: c.Train.Momentum,
				WeightDecay: c.Train.WeightDecay},
			Schedule: optim.Schedule{Kind: c.Train.Schedule, TMax: 10}}},
		engine.Settings{Client: client.Settings{Terms: c.Terms}, Workers: 2})

	return rec.Tensors
}

// notCompared matches names of tensors that the PyTorch script names otherwise, or draws by itself.
var notCompared = regexp.MustCompile(`^start/|/grad_raw/|/scalar/|/prepared/|/constant/|/optimizer/|` +
	`/eval/(param|received|before|down|kept|scalar|client)/|draw/(dpfpl|dp|mvp|compress|attack)/|` +
	`/draw/(text|image)/drawn`)

// compare reports differences above 1e-5, each relative to the largest value of its tensor or to 1e-2. The gradient of
// a single term is small, a remainder of float32 numbers that nearly cancel, like MOON's cosines: it may differ by
// 2e-4. So may the gradients of pFedMoAP's gate, whose biases do not change the differences between classes.
// SCAFFOLD's change divides the difference of float32 parameters, which are rounded to 3e-8, by 0.2: it may differ by
// 2e-5.
func compare(t *testing.T, label string, got tensor.Map, want *tensor.Tensor) {
	t.Helper()
	at := 0
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

		least, bound := 1e-2, 1e-5
		switch {
		case strings.Contains(name, "/term/"):
			least, bound = 1e-3, 2e-4
		case strings.Contains(name, "/grad/gate/"):
			bound = 2e-4
		case strings.Contains(name, "/scaffold/dc/"):
			bound = 2e-5
		}

		scale := max(least, tensor.Of(want.Data[at:at+part.Len()], part.Len()).MaxAbs())
		for i, v := range part.Data {
			if diff := math.Abs(float64(v)-float64(want.Data[at+i])) / scale; !(diff <= bound) {
				t.Errorf("%s: %s at element %d is %g, PyTorch gives %g", label, name, i, v, want.Data[at+i])
				break
			}
		}

		at += part.Len()
	}

	if at != want.Len() {
		t.Errorf("%s: the trace has %d numbers, the witness %d", label, at, want.Len())
	}
}
