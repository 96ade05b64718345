package ort_test

import (
	"math"
	"sync"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	_ "promptfed/runtime/ort/orttest" // the provider of make test-cuda
	"promptfed/runtime/tensor"
)

// bindAll binds the runs of all sessions that tests open.
var bindAll bool

// Runs with inputs and outputs bound to device memory have the same results and errors.
func TestBoundRunsAreRuns(t *testing.T) {
	bindAll = true
	defer func() { bindAll = false }()
	for name, test := range map[string]func(*testing.T){"batches": TestDynamicBatch,
		"integers and scalars": TestIntegerInputsAndScalarOutput,
		"undeclared shapes":    TestScalarInputAndUndeclaredShapes, "types": TestOtherTypes,
		"overflow": TestUnsignedOverflow, "outputs": TestKeptOutputs, "inputs": TestWrongInputs,
		"shapes": TestDeclaredShapeIsWrong, "side by side": TestConcurrentRuns, "stopped": TestCancel,
		"closed": TestClose, "closed meanwhile": TestCloseDuringRuns} {
		t.Run(name, test)
	}
}

// handed are two graphs; the second one takes values of the first: of dynamic size, integers, of rank 0, and of an
// undeclared shape. The first computes y = x W, count = 2 i, sum = Σ x and minus = -x. The second computes z, the rows
// count of y times scale and sum, and plus = |minus|.
func handed(t *testing.T, o ort.Options) (first, second *ort.Session) {
	b := (&builder{}).in("x", f32, dims{"B", 2}).in("i", i64, dims{2})
	b.constant("W", []float32{1, 2, 3, 4, 5, 6}, 2, 3).node("MatMul", []string{"x", "W"}, "y")
	b.node("Add", []string{"i", "i"}, "count").node("ReduceSum", []string{"x"}, "sum", intAttr("keepdims", 0))
	b.node("Neg", []string{"x"}, "minus").out("y", f32, dims{"B", 3}).out("count", i64, dims{2})
	first = open(t, b.out("sum", f32, dims{}).out("minus", f32, nil).model(t), o)
	b = (&builder{}).in("y", f32, dims{"B", 3}).in("count", i64, dims{2}).in("sum", f32, dims{})
	b.in("minus", f32, dims{"B", 2}).in("scale", f32, dims{3}).node("Mul", []string{"y", "scale"}, "ys")
	b.node("Gather", []string{"ys", "count"}, "rows")
	b.node("Mul", []string{"rows", "sum"}, "z").out("z", f32, dims{2, 3}).node("Abs", []string{"minus"}, "plus")
	return first, open(t, b.out("plus", f32, dims{"B", 2}).model(t), o)
}

// By hand, with x = [1,2] [0,1] [-1,0] and i = [0,1]: x W is [9,12,15] [4,5,6] [-1,-2,-3], rows 0 and 2 of it times
// [1,10,100] and the sum 3 of x are [27,360,4500] [-3,-60,-900], and |-x| is |x|. Plain runs return this, and so do
// bound runs on one or two devices (the CPU stands in for them) or on the device of make test-cuda. Each value is
// copied to a device at most once.
func TestValuesStayOnTheDevice(t *testing.T) {
	x, scale := tensor.Of([]float32{1, 2, 0, 1, -1, 0}, 3, 2), tensor.Of([]float32{1, 10, 100}, 3)
	for name, o := range map[string]ort.Options{"host": {Provider: ort.CPU}, "device": {Bind: true},
		"devices": {Provider: ort.CPU, Bind: true, Devices: 2}} {
		first, second := handed(t, o)
		held, err := first.RunKeep(t.Context(), tensor.Map{"x": x, "i": tensor.OfInts([]int64{0, 1}, 2)}, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := held.Bytes(); got != 4*9+8*2+4+4*6 {
			t.Errorf("%s: %d bytes", name, got)
		}
		held["scale"] = ort.NewValue(scale)
		goldentest.NoError(t, first.Close()) // its values outlive it
		takes := func(s *ort.Session) {
			out, err := s.RunWith(t.Context(), tensor.Map{}, held)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			equal(t, out["z"], tensor.Of([]float32{27, 360, 4500, -3, -60, -900}, 2, 3))
			equal(t, out["plus"], tensor.Of([]float32{1, 2, 0, 1, 1, 0}, 3, 2))
		}
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() { takes(second) })
		}
		all.Wait()
		goldentest.NoError(t, second.Close()) // the last session there; its uploader closes too
		_, again := handed(t, o)
		takes(again)
		least, most := 1, max(1, o.Devices)
		if !o.Bind {
			least, most = 0, 0
		}
		for _, in := range []string{"scale", "y"} {
			if n := held[in].Copies(); n < least || n > most {
				t.Errorf("%s: %s lies on %d devices, want %d to %d", name, in, n, least, most)
			}
		}
	}
}

// Values on a device are checked against the graph's declarations, like tensors.
func TestWrongValues(t *testing.T) {
	o := ort.Options{Bind: true}
	first, second := handed(t, o)
	x, i := tensor.New(3, 2), tensor.OfInts([]int64{0, 1}, 2)
	good := func() ort.Values {
		held, err := first.RunKeep(t.Context(), tensor.Map{"x": x, "i": i}, nil)
		goldentest.NoError(t, err)
		held["scale"] = ort.NewValue(tensor.New(3))
		return held
	}
	other, err := first.RunKeep(t.Context(), tensor.Map{"x": tensor.New(4, 2), "i": i}, nil)
	goldentest.NoError(t, err)
	for name, c := range map[string]struct {
		change func(ort.Values)
		parts  []string
	}{
		"missing": {func(m ort.Values) { delete(m, "y") }, []string{`"y" is missing`}},
		"extra":   {func(m ort.Values) { m["x"] = m["y"] }, []string{`no input "x"`}},
		"kind": {func(m ort.Values) { m["y"] = m["count"] }, []string{`"y" is int64[2]`,
			"y float32[B 3] is wanted"}},
		"rank": {func(m ort.Values) { m["scale"] = m["y"] }, []string{"rank 2", "rank 1 is wanted"}},
		"size": {func(m ort.Values) { m["y"] = m["minus"] }, []string{"axis 1 must be 3"}},
		"another run's": {func(m ort.Values) { m["minus"] = other["minus"] }, []string{`"y" has 3 on axis 0`,
			`"minus" has 4 on axis 0`}},
		"negative": {func(m ort.Values) {
			m["scale"] = ort.NewValue(&tensor.Tensor{Shape: []int{-3}, Data: make([]float32, 3)})
		}, []string{"impossible shape [-3]"}},
		"length": {func(m ort.Values) {
			m["scale"] = ort.NewValue(&tensor.Tensor{Shape: []int{3}, Data: make([]float32, 2)})
		}, []string{"holds 2 elements"}},
	} {
		held := good()
		c.change(held)
		_, err := second.RunWith(t.Context(), nil, held)
		t.Run(name, func(t *testing.T) { wantError(t, err, c.parts...) })
	}
	_, host := handed(t, ort.Options{Provider: ort.CPU})
	_, err = host.RunWith(t.Context(), nil, good())
	wantError(t, err, `input "y"`, "it lies on a device, and this session runs on the CPU")
	held := good()
	held["scale"] = ort.NewValue(tensor.Of([]float32{1, float32(math.NaN()), 1}, 3)) // numbers are not checked
	out, err := second.RunWith(t.Context(), nil, held)
	if err != nil || !math.IsNaN(float64(out["z"].Data[1])) {
		t.Errorf("%v, %v", out, err)
	}
	goldentest.NoError(t, second.Close())
	_, err = second.RunKeep(t.Context(), nil, held)
	wantError(t, err, "already closed")
}
