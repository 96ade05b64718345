package ort_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

func TestWrongInputs(t *testing.T) {
	b := (&builder{}).in("image", f32, dims{"B", 4}).in("label", i64, dims{"B"}).in("mix", f32, dims{2, 2})
	b.node("Identity", []string{"image"}, "y").out("y", f32, dims{"B", 4})
	s := open(t, b.model(t), ort.Options{})
	good := func() tensor.Map {
		return tensor.Map{"image": tensor.New(3, 4), "label": tensor.OfInts(make([]int64, 3), 3), "mix": tensor.New(2,
			2)}
	}
	for name, c := range map[string]struct {
		change func(tensor.Map)
		parts  []string
	}{
		"missing": {func(m tensor.Map) { delete(m, "label") }, []string{`"label" is missing`,
			"image float32[B 4], label int64[B], mix float32[2 2]"}},
		"nil": {func(m tensor.Map) { m["mix"] = nil }, []string{`"mix" is missing`}},
		"extra": {func(m tensor.Map) { m["imgae"] = tensor.New(3, 4) }, []string{`no input "imgae"`,
			"image float32[B 4]"}},
		"kind": {func(m tensor.Map) { m["label"] = tensor.New(3) }, []string{`"label" is float32[3]`,
			"label int64[B] is wanted"}},
		"integers": {func(m tensor.Map) { m["mix"] = tensor.OfInts(make([]int64, 4), 2, 2) },
			[]string{`"mix" is int64[2 2]`, "mix float32[2 2] is wanted"}},
		"rank": {func(m tensor.Map) { m["mix"] = tensor.New(4) }, []string{`rank 1`, "rank 2 is wanted"}},
		"size": {func(m tensor.Map) { m["image"] = tensor.New(3, 5) }, []string{"axis 1 must be 4"}},
		"symbol": {func(m tensor.Map) { m["label"] = tensor.OfInts(make([]int64, 2), 2) },
			[]string{`"image" has 3 on axis 0`, `"label" has 2 on axis 0`, "both are B"}},
		"length": {func(m tensor.Map) { m["mix"] = &tensor.Tensor{Shape: []int{2, 2}, Data: make([]float32, 3)} },
			[]string{"holds 3 elements", "has 4"}},
		"negative": {func(m tensor.Map) { m["mix"] = &tensor.Tensor{Shape: []int{-2, -2}, Data: make([]float32, 4)} },
			[]string{"impossible shape [-2 -2]"}},
		"overflow": {func(m tensor.Map) { m["mix"] = &tensor.Tensor{Shape: []int{1 << 40, 1 << 40}} },
			[]string{"impossible shape"}},
	} {
		in := good()
		c.change(in)
		_, err := s.Run(t.Context(), in)
		t.Run(name, func(t *testing.T) { wantError(t, err, append(c.parts, `graph "test"`)...) })
	}
	run(t, s, good())
}

func TestWrongModels(t *testing.T) {
	plain := func() *builder { return (&builder{}).in("x", f32, dims{"B"}) }
	for name, c := range map[string]struct {
		model   *onnx.ModelProto
		options ort.Options
		parts   []string
	}{
		"empty": {&onnx.ModelProto{}, ort.Options{}, []string{"no graph"}},
		"no inputs": {(&builder{}).constant("y", []float32{1}, 1).out("y", f32, dims{1}).model(t), ort.Options{},
			[]string{"no inputs"}},
		"no outputs": {plain().model(t), ort.Options{}, []string{"no outputs"}},
		"strings": {(&builder{}).in("x", onnx.TensorProto_STRING, dims{"B"}).model(t), ort.Options{},
			[]string{`input "x"`, "type string"}},
		"unknown op": {plain().node("Gradient", []string{"x"}, "y").out("y", f32, dims{"B"}).model(t),
			ort.Options{}, []string{"provider cpu rejects it", "Gradient"}},
		"unknown keep": {plain().node("Abs", []string{"x"}, "y").out("y", f32, dims{"B"}).model(t),
			ort.Options{Outputs: []string{"z"}}, []string{`no output "z"`, "it has y"}},
		"provider": {linear(t), ort.Options{Provider: "tpu"}, []string{`unknown provider "tpu"`, "cpu, cuda or auto"}},
		"limit":    {linear(t), ort.Options{MemoryLimit: 1 << 20}, []string{"memory limit", "choose cuda"}},
		"devices":  {linear(t), ort.Options{Devices: 2}, []string{"2 devices on provider cpu", "choose cuda"}},
		"threads":  {linear(t), ort.Options{IntraThreads: -1}, []string{"-1 threads"}},
		"products": {linear(t), ort.Options{Products: "sse"}, []string{`no products of "sse"`, ort.PlainProducts}},
		"level":    {linear(t), ort.Options{OptLevel: 9}, []string{"level 9"}},
		"device":   {linear(t), ort.Options{Provider: ort.CUDA, Device: -1}, []string{"device -1"}},
		"weights nowhere": {plain().external("W", "w.bin", 0, 4, 1).node("Mul", []string{"x", "W"}, "y").out("y",
			f32, dims{"B"}).model(t), ort.Options{}, []string{`tensor "W"`, "WeightsDir"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ort.NewSession(c.model, c.options)
			wantError(t, err, c.parts...)
		})
	}
	_, err := ort.Open(t.TempDir()+"/none.onnx", ort.Options{})
	wantError(t, err, "none.onnx")
}

// A wrong static output shape is an error of the graph, not of the caller, and must be reported.
func TestDeclaredShapeIsWrong(t *testing.T) {
	b := (&builder{}).in("x", f32, dims{"B", 2}).node("Identity", []string{"x"}, "y").out("y", f32, dims{3, 2})
	s := open(t, b.model(t), ort.Options{})
	_, err := s.Run(t.Context(), tensor.Map{"x": tensor.New(2, 2)})
	wantError(t, err, "run: ")
}

// The library of the tests has no CUDA provider: CUDA is an error that says what to install, and auto returns the CPU
// and the reason.
func TestCUDAAbsent(t *testing.T) {
	_, err := ort.NewSession(linear(t), ort.Options{Provider: ort.CUDA})
	if err == nil {
		t.Skip("this library has a CUDA provider")
	}
	if strings.Contains(err.Error(), ".cc:") {
		t.Errorf("the error names ONNX Runtime's source: %v", err)
	}
	todo := []string{"make library-cuda", ort.LibraryVariable}
	if needed, _ := ort.CUDALibraries(); len(needed) > 0 { // the GPU build on a machine without CUDA
		todo = []string{"missing here: lib", "libcudnn.so.9", "LD_LIBRARY_PATH"}
	}
	wantError(t, err, append(todo, "provider cuda is not available in", "or use provider cpu")...)
	s := open(t, linear(t), ort.Options{Provider: ort.Auto, MemoryLimit: 1 << 30})
	if s.Provider() != ort.CPU {
		t.Errorf("auto took %q", s.Provider())
	}
	equal(t, run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"], tensor.Of([]float32{9, 12, 15}, 1, 3))
}

// ChooseProvider returns one provider and the reason against CUDA; without CUDA the GPU's memory limit is dropped.
func TestChooseProvider(t *testing.T) {
	o, why, err := ort.ChooseProvider(ort.Options{Prepack: true})
	if err != nil || why != nil || o.Provider != ort.CPU || !o.Prepack {
		t.Errorf("the default chooses as %+v, %v, %v", o, why, err)
	}
	_, _, err = ort.ChooseProvider(ort.Options{Provider: "tpu"})
	wantError(t, err, `unknown provider "tpu"`)
	_, _, err = ort.ChooseProvider(ort.Options{Provider: ort.CUDA, MemoryLimit: 1 << 30})
	if err == nil {
		t.Skip("this library has a CUDA provider")
	}
	wantError(t, err, "provider cuda is not available in", "or use provider cpu")
	o, why, err = ort.ChooseProvider(ort.Options{Provider: ort.Auto, MemoryLimit: 1 << 30, IntraThreads: 2})
	if err != nil || o.Provider != ort.CPU || o.MemoryLimit != 0 || o.IntraThreads != 2 {
		t.Errorf("auto chooses as %+v, %v", o, err)
	}
	wantError(t, why, "provider cuda is not available in")
	equal(t, run(t, open(t, linear(t), o), tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"],
		tensor.Of([]float32{9, 12, 15}, 1, 3))
}

func TestLevels(t *testing.T) {
	for name, want := range map[string]ort.OptLevel{"all": ort.OptAll, "extended": ort.OptExtended,
		"basic": ort.OptBasic, "none": ort.OptNone} {
		if got, err := ort.ParseOptLevel(name); err != nil || got != want {
			t.Errorf("%s gives %v, %v", name, got, err)
		}
	}
	_, err := ort.ParseOptLevel("ALL")
	goldentest.WantErrorOf(t, "ALL", err, "use all, extended, basic or none")
}

func TestClose(t *testing.T) {
	s := open(t, linear(t), ort.Options{})
	for range 2 {
		goldentest.NoError(t, s.Close())
	}
	_, err := s.Run(t.Context(), tensor.Map{"x": tensor.New(1, 2)})
	wantError(t, err, "already closed")
	if !errors.Is(err, ort.ErrClosed) {
		t.Errorf("%v is not ErrClosed", err)
	}
}

// A run of a loop of 2^63-1 iterations ends when it is stopped, at whatever moment, and the session stays usable. A run
// that does not stop lasts until -timeout ends all tests.
func TestCancel(t *testing.T) {
	body := (&builder{}).in("i", i64, dims{}).in("on", tf, dims{}).in("v", f32, dims{"B", 2})
	body.node("Identity", []string{"on"}, "more").out("more", tf, dims{})
	body.node("Neg", []string{"v"}, "w").out("w", f32, dims{"B", 2}).Name = "body"
	b := (&builder{}).in("times", i64, dims{}).in("x", f32, dims{"B", 2})
	b.node("Loop", []string{"times", "", "x"}, "y", &onnx.AttributeProto{Name: "body",
		Type: onnx.AttributeProto_GRAPH, G: &body.GraphProto})
	s := open(t, b.out("y", f32, dims{"B", 2}).model(t), ort.Options{})
	times := func(n int64) tensor.Map {
		return tensor.Map{"times": tensor.OfInts([]int64{n}), "x": tensor.New(1, 2)}
	}

	why := errors.New("client left")
	ctx, stop := context.WithCancelCause(t.Context())
	go func() {
		busytest.Delay(50 * time.Millisecond)
		stop(why)
	}()
	for range 2 { // during a run, and before one
		_, err := s.Run(ctx, times(math.MaxInt64))
		wantError(t, err, "the run was stopped", "client left")
		if !errors.Is(err, why) {
			t.Errorf("%v does not wrap the cause", err)
		}
	}
	live, end := context.WithCancel(t.Context())
	defer end()
	_, err := s.Run(live, times(2))
	goldentest.NoError(t, err)
}
