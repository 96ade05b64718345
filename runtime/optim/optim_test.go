package optim

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/go-viper/mapstructure/v2"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

type goldens struct {
	Shapes map[string][]int
	Start  map[string][]float32
	Grads  []map[string][]float32
	LRs    []float64
	Cases  []struct {
		Config map[string]any
		After  []map[string][]float64
	}
}

// readGoldens reads testdata/optimizers.json, written by tools/golden/optim.py: PyTorch 1.13's optimizers in float64 on
// float32 inputs.
func readGoldens(t *testing.T) goldens {
	t.Helper()
	var g goldens
	readJSON(t, "optimizers.json", &g)
	return g
}

func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	goldentest.ReadJSON(t, "testdata/"+name, into)
}

// decode fills into from the keys of a configuration file, strictly.
func decode(t *testing.T, from map[string]any, into any) {
	t.Helper()
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{ErrorUnused: true, WeaklyTypedInput: true,
		TagName: "config", Result: into})
	if err == nil {
		err = d.Decode(from)
	}
	goldentest.NoError(t, err)
}

func (g goldens) tensors(from map[string][]float32) tensor.Map {
	m := tensor.Map{}
	for name, v := range from {
		m[name] = tensor.Of(slices.Clone(v), g.Shapes[name]...)
	}
	return m
}

func sameBits(a, b tensor.Map) bool {
	return maps.EqualFunc(a, b, func(x, y *tensor.Tensor) bool {
		return x.SameShape(y) && slices.Equal(x.Ints, y.Ints) && slices.EqualFunc(x.Data, y.Data,
			func(u, v float32) bool {
				return math.Float32bits(u) == math.Float32bits(v)
			})
	})
}

// TestOptimizers runs every golden case and checks the parameters after each step. It also checks that an optimizer
// that is stopped after any step and restored from its state ends with the same bits.
func TestOptimizers(t *testing.T) {
	g := readGoldens(t)
	tested := map[string]bool{}
	for _, c := range g.Cases {
		t.Run(fmt.Sprint(c.Config), func(t *testing.T) {
			var cfg Config
			decode(t, c.Config, &cfg)
			tested[cfg.Name] = true
			o := must(t, cfg)
			params := g.tensors(g.Start)
			var states, saved []tensor.Map
			for i, grads := range g.Grads {
				gi := g.tensors(grads)
				before := gi.Clone()
				goldentest.NoError(t, o.Step(params, gi, g.LRs[i]))
				if !sameBits(gi, before) {
					t.Fatalf("step %d changed the gradients", i)
				}
				states, saved = append(states, o.State()), append(saved, params.Clone())
				for name, want := range c.After[i] {
					for k, w := range want {
						if got := float64(params[name].Data[k]); !(math.Abs(got-w) <= 1e-6*(1+math.Abs(w))) {
							t.Errorf("step %d, %s[%d] = %.9g, PyTorch %.9g", i, name, k, got, w)
						}
					}
				}
			}
			for i := range states {
				r, p := must(t, cfg), saved[i].Clone()
				goldentest.NoError(t, r.Load(states[i]))
				for k := i + 1; k < len(g.Grads); k++ {
					goldentest.NoError(t, r.Step(p, g.tensors(g.Grads[k]), g.LRs[k]))
				}
				if !sameBits(p, params) || !sameBits(r.State(), o.State()) {
					t.Errorf("restored after step %d, the run ends in other bits", i)
				}
			}
		})
	}
	for _, name := range Names() {
		if !tested[name] {
			t.Errorf("optimizer %s has no golden case", name)
		}
	}
}

func must(t *testing.T, cfg Config) *Optimizer {
	t.Helper()
	o, err := New(cfg)
	goldentest.NoError(t, err)
	return o
}

// By hand: [3,4] 1e-6 has norm 5e-6, so a limit of 1e-6 scales by 1e-6/(5e-6+1e-6) = 1/6. A norm below the limit stays.
func TestClipByGlobalNorm(t *testing.T) {
	for limit, want := range map[float64][]float64{1e-6: {.5e-6, 4e-6 / 6}, 7e-6: {3e-6, 4e-6}} {
		p := tensor.Map{"x": tensor.New(1), "y": tensor.New(1)}
		g := tensor.Map{"x": tensor.Of([]float32{-3e-6}, 1), "y": tensor.Of([]float32{-4e-6}, 1)}
		goldentest.NoError(t, With(ClipByGlobalNorm(limit)).Step(p, g, 1))
		for i, name := range p.Names() {
			if got := float64(p[name].Data[0]); math.Abs(got-want[i]) > 1e-12 {
				t.Errorf("limit %v: %s is %v, want %v", limit, name, got, want[i])
			}
		}
	}
}

// TestStateIsACopy: neither State nor Load shares memory with the optimizer.
func TestStateIsACopy(t *testing.T) {
	o, p, g := must(t, Config{Name: "sgd", Momentum: .9}), tensor.Map{"x": tensor.New(2)},
		tensor.Map{"x": tensor.Of([]float32{1, 2}, 2)}
	goldentest.NoError(t, o.Step(p, g, .1))
	s := o.State()
	want := s.Clone()
	goldentest.NoError(t, o.Load(s))
	goldentest.NoError(t, o.Step(p, g, .1))
	if !sameBits(s, want) {
		t.Error("a step changed a state that was handed out or loaded")
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		says string
	}{
		{Config{Name: "lion"}, "adam, adamw, sgd"},
		{Config{}, "adam, adamw, sgd"},
		{Config{Name: "sgd", Nesterov: true}, "nesterov"},
		{Config{Name: "sgd", Nesterov: true, Momentum: .9, Dampening: .1}, "nesterov"},
		{Config{Name: "sgd", Beta1: .9}, "beta1"},
		{Config{Name: "adam", Momentum: .9}, "momentum"},
		{Config{Name: "adam", Beta2: 1}, "beta2"},
		{Config{Name: "adamw", Eps: -1}, "eps"},
		{Config{Name: "sgd", LR: math.NaN()}, "lr"},
		{Config{Name: "sgd", ClipNorm: -1}, "clip_norm"},
		{Config{Name: "sgd", WeightDecay: math.Inf(1)}, "weight_decay"},
		{Config{Name: "sgd", Dampening: math.NaN()}, "dampening"},
	} {
		_, err := New(c.cfg)
		goldentest.WantErrorOf(t, fmt.Sprint(c.cfg), err, c.says)
	}
}

// TestStepErrors checks that a step with an error changes neither parameters nor state, unless a number is not finite.
func TestStepErrors(t *testing.T) {
	x := func(v ...float32) tensor.Map { return tensor.Map{"x": tensor.Of(v, len(v))} }
	nan := float32(math.NaN())
	for _, c := range []struct {
		name  string
		grads tensor.Map
		lr    float64
		says  string
	}{
		{"unknown", tensor.Map{"y": tensor.New(2)}, .1, `"y"`},
		{"shape", x(1, 2, 3), .1, "float32[3]"},
		{"missing", tensor.Map{"x": nil}, .1, `"x"`},
		{"integers", tensor.Map{"x": tensor.OfInts([]int64{1, 2}, 2)}, .1, "int64[2]"},
		{"rate", x(1, 2), math.NaN(), "learning rate"},
	} {
		o, p := must(t, Config{Name: "adam"}), x(5, 6)
		goldentest.NoError(t, o.Step(p, x(1, 2), .1))
		wantP, wantS := p.Clone(), o.State()
		goldentest.WantErrorOf(t, c.name, o.Step(p, c.grads, c.lr), c.says)
		if !sameBits(p, wantP) || !sameBits(o.State(), wantS) {
			t.Errorf("%s: the refused step changed something", c.name)
		}
	}
	for _, c := range []struct {
		cfg         Config
		param, grad []float32
		says        string
	}{
		{Config{Name: "sgd"}, []float32{1, 2}, []float32{1, nan}, "the gradient of x holds NaN at element 1"},
		{Config{Name: "sgd", ClipNorm: 1}, []float32{1, 2}, []float32{1, nan},
			"the gradient of x holds NaN at element 1"},
		{Config{Name: "sgd", ClipValue: 1}, []float32{1, 2}, []float32{float32(math.Inf(-1)), 0},
			"the gradient of x holds -Inf at element 0"},
		{Config{Name: "sgd", WeightDecay: 1e30}, []float32{1, 3e38}, []float32{1, 1},
			`update of "x" is +Inf at element 1`},
		{Config{Name: "sgd"}, []float32{3e38, 1}, []float32{-3e38, 1}, "parameter x holds +Inf at element 0"},
	} {
		err := must(t, c.cfg).Step(x(c.param...), x(c.grad...), 1)
		goldentest.WantErrorOf(t, fmt.Sprint(c.cfg, c.param, c.grad), err, c.says)
	}
	// a joint norm spoils the update of x too, but the gradient of y is named, also for its first element
	g := tensor.Map{"x": tensor.Of([]float32{1}, 1), "y": tensor.Of([]float32{nan}, 1)}
	if err := must(t, Config{Name: "sgd", ClipNorm: 1}).Step(tensor.Map{"x": tensor.New(1), "y": tensor.New(1)}, g,
		1); err == nil || err.Error() != "the gradient of y holds NaN at element 0" {
		t.Error(err)
	}
	// of many parts, which several cores check, the first element of the first parameter is named
	o, many, grad := must(t, Config{Name: "sgd"}), tensor.New(1<<20), tensor.New(1<<20)
	grad.Data[700], grad.Data[1<<19] = nan, nan
	if err := o.Step(tensor.Map{"w": tensor.New(5), "x": many, "y": many.Clone()}, tensor.Map{"w": tensor.New(5),
		"x": grad, "y": grad}, 1); err == nil || err.Error() != "the gradient of x holds NaN at element 700" {
		t.Error(err)
	}
}

// The cores share the numbers of all parameters together. Each parameter has the bits of a step without the others.
func TestStepOfManyParameters(t *testing.T) {
	cfg := Config{Name: "sgd", Momentum: .9, WeightDecay: .1}
	all, alone, grads := tensor.Map{}, tensor.Map{}, tensor.Map{}
	for name, n := range map[string]int{"a": 300_001, "b": 3, "c": 262_144, "d": 0, "e": 16_385} {
		all[name], grads[name] = tensor.New(n), tensor.New(n)
		for i := range n {
			all[name].Data[i], grads[name].Data[i] = float32(i%11)-5, float32(i%7)-2
		}
		alone[name] = all[name].Clone()
	}
	o, rates := must(t, cfg), map[string]float64{"c": 2}
	for range 2 {
		goldentest.NoError(t, o.StepFrom(nil, all, grads, .1, rates))
	}
	for name, g := range grads {
		o, p := must(t, cfg), tensor.Map{name: alone[name]}
		for range 2 {
			goldentest.NoError(t, o.StepFrom(nil, p, tensor.Map{name: g}, .1, rates))
		}
	}
	if !sameBits(all, alone) {
		t.Error("other bits")
	}
}

// TestStepFrom checks that a step from values elsewhere has the bits of a step in place, and leaves them as they are.
func TestStepFrom(t *testing.T) {
	for _, cfg := range []Config{{Name: "sgd", Momentum: .9, WeightDecay: .1}, {Name: "adamw", WeightDecay: .1},
		{Name: "sgd", WeightDecay: .1, ClipNorm: .5}} {
		x, g := tensor.New(700, 800), tensor.Map{"x": tensor.New(700, 800)}
		for i := range x.Data {
			x.Data[i], g["x"].Data[i] = float32(i%11)-5, float32(i%7)-2
		}
		before, in, out := tensor.Map{"x": x}, tensor.Map{"x": x.Clone()}, tensor.Map{"x": tensor.New(700, 800)}
		want, got := must(t, cfg), must(t, cfg)
		goldentest.NoError(t, errors.Join(want.Step(in, g, .1), got.StepFrom(before, out, g, .1, nil)))
		if !sameBits(in, out) || !sameBits(want.State(), got.State()) || x.Data[12] != -4 {
			t.Errorf("%+v: other bits", cfg)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	step := func(v ...int64) *tensor.Tensor { return tensor.OfInts(v, len(v)) }
	b := func() *tensor.Tensor { return tensor.Of([]float32{1, 2}, 2) }
	first := tensor.Map{"momentum/b/x": b(), "momentum/step/x": step(0)} // before the first step
	if err := must(t, Config{Name: "sgd", Momentum: .9}).Load(first); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name string
		s    tensor.Map
		says string
	}{
		{"other", tensor.Map{"adam/m/x": b()}, "momentum/b/NAME, momentum/step/NAME"},
		{"no name", tensor.Map{"momentum/b/": b()}, "momentum/b/NAME"},
		{"half", tensor.Map{"momentum/b/x": b()}, `"momentum/step/x" is missing`},
		{"kind", tensor.Map{"momentum/b/x": step(1), "momentum/step/x": step(1)}, "wrong kind"},
		{"size", tensor.Map{"momentum/b/x": {Shape: []int{3}, Data: []float32{1}}, "momentum/step/x": step(1)},
			"number of elements"},
		{"count", tensor.Map{"momentum/b/x": b(), "momentum/step/x": step(-1)}, "step count"},
		{"counts", tensor.Map{"momentum/b/x": b(), "momentum/step/x": step(1, 2)}, "step count"},
		{"nil", tensor.Map{"momentum/b/x": nil, "momentum/step/x": step(1)}, "momentum/b/x"},
		{"nan", tensor.Map{"momentum/b/x": tensor.Scalar(float32(math.NaN())), "momentum/step/x": step(1)}, "NaN"},
	} {
		o := must(t, Config{Name: "sgd", Momentum: .9})
		goldentest.WantErrorOf(t, c.name, o.Load(c.s), c.says)
		if len(o.State()) != 0 {
			t.Errorf("%s: a refused state was kept", c.name)
		}
	}
	goldentest.WantError(t, must(t, Config{Name: "sgd"}).Load(first), "not of this optimizer, which keeps no state")
	o := must(t, Config{Name: "sgd", Momentum: .9})
	goldentest.NoError(t, o.Load(tensor.Map{"momentum/b/x": b(), "momentum/step/x": step(1)}))
	x3 := tensor.Map{"x": tensor.New(3)}
	goldentest.WantError(t, o.Step(x3, x3.Clone(), .1), `"momentum/b/x"`)
}

// TestReset checks that after Reset the steps are those of a new optimizer, bit for bit, also for a parameter of
// another shape, and for one of several parts (tensor.InParts).
func TestReset(t *testing.T) {
	cfg := Config{Name: "adamw", WeightDecay: .1}
	used := must(t, cfg)
	for i, shape := range [][]int{{3}, {3}, {700, 800}, {2, 3}, {700, 800}} {
		got, want, fresh := tensor.Map{"x": tensor.New(shape...)}, tensor.Map{"x": tensor.New(shape...)}, must(t, cfg)
		g := tensor.Map{"x": tensor.New(shape...)}
		for k := range g["x"].Data {
			g["x"].Data[k] = float32(k%7) - 2
		}
		for range 2 {
			goldentest.NoError(t, errors.Join(used.Step(got, g, .1), fresh.Step(want, g, .1)))
		}
		if !sameBits(got, want) || !sameBits(used.State(), fresh.State()) {
			t.Errorf("turn %d ends in other bits", i)
		}
		used.Reset()
		if len(used.State()) != 0 {
			t.Errorf("turn %d left a state", i)
		}
	}
}
