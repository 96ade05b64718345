package ort_test

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Two graphs over the same weights W [2,3] and b [3] on two devices (the CPU stands in for them): each weight is copied
// to each device once, and freed with the last session. By hand: [1,2] W + b = [9,12,15] + [10,20,30].
func TestWeightsAreCopiedToADeviceOnce(t *testing.T) {
	dir := t.TempDir()
	offset := safetensors(t, filepath.Join(dir, "m.safetensors"), 3, append(slices.Clone(weights), 10, 20, 30))
	if offset%4 != 0 {
		t.Fatalf("weights begin at %d: give the header spaces", offset)
	}
	graph := func(name string) *onnx.ModelProto {
		b := (&builder{}).in("x", f32, dims{"B", 2}).external("W", "m.safetensors", offset, 24, 2, 3)
		b.Name = name
		b.external("b", "m.safetensors", offset+24, 12, 3).node("MatMul", []string{"x", "W"}, "xW")
		return b.node("Add", []string{"xW", "b"}, "y").out("y", f32, dims{"B", 3}).model(t)
	}
	// Graphs over a file that was written long enough ago could be shared with later sessions, and are not.
	orttest.Settle(t, filepath.Join(dir, "m.safetensors"))
	o := ort.Options{WeightsDir: dir, Devices: 2, Bind: true}
	var both [2]*ort.Session
	for i, name := range []string{"one", "two"} {
		both[i] = open(t, graph(name), o)
		if n := ort.Uploaded(); n != 4 {
			t.Errorf("%d weights on devices with %d sessions, want 2 on each of 2", n, i+1)
		}
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			y := run(t, both[i%2], tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"]
			equal(t, y, tensor.Of([]float32{19, 32, 45}, 1, 3))
		})
	}
	all.Wait()
	goldentest.NoError(t, both[0].Close())
	equal(t, run(t, both[1], tensor.Map{"x": tensor.New(1, 2)})["y"], tensor.Of([]float32{10, 20, 30}, 1, 3))
	if err := both[1].Close(); err != nil || ort.Uploaded() != 0 {
		t.Errorf("%d weights on devices without sessions, %v", ort.Uploaded(), err)
	}
}

// Parallel runs are spread over the devices, and runs of other sessions count.
func TestRunsSpreadOverDevices(t *testing.T) {
	o := ort.Options{Device: 2, Devices: 3, Bind: true}
	s := open(t, linear(t), o)
	for range 2 { // the runs of the first iteration are over
		if got := s.Pick(5); !slices.Equal(got, []int{2, 3, 4, 2, 3}) {
			t.Errorf("runs on devices %v", got)
		}
	}
}

// The free memory is that of a GPU: between none and 1 TB. On the CPU, also in place of devices, it is unknown.
func TestFreeMemory(t *testing.T) {
	for _, o := range []ort.Options{{}, {Provider: ort.CPU}, {Provider: ort.CPU, Bind: true, Devices: 2}} {
		s := open(t, linear(t), o)
		if n := s.FreeMemory(); (n > 0) != (s.Provider() == ort.CUDA) || n > 1e12 {
			t.Errorf("%+v: %d bytes are free", o, n)
		}
		if o.OnDevice() != (o.Bind || s.Provider() == ort.CUDA) {
			t.Errorf("%+v: on a device: %v", o, o.OnDevice())
		}
	}
}

// Every operator of a graph runs on the CPU. The two products of [1,2] by W become one by common subexpression
// elimination. Without the option nothing is recorded.
func TestPlacement(t *testing.T) {
	b := (&builder{}).in("x", f32, dims{"B", 2}).constant("W", []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	b.node("MatMul", []string{"x", "W"}, "a").node("MatMul", []string{"x", "W"}, "b")
	b.node("Add", []string{"a", "b"}, "c")
	s := open(t, b.node("Sin", []string{"c"}, "y").out("y", f32, dims{"B", 3}).model(t), ort.Options{Placement: true})
	nodes, err := s.Placement()
	var ops []string
	for _, n := range nodes {
		if ops = append(ops, n.Operator); n.Provider != ort.CPU {
			t.Errorf("node %+v", n)
		}
	}
	slices.Sort(ops)
	if err != nil || !slices.Equal(ops, []string{"Add", "MatMul", "Sin"}) {
		t.Errorf("operators %v, %v", ops, err)
	}
	if _, err = open(t, linear(t), ort.Options{}).Placement(); err == nil {
		t.Error("placement that nobody asked to note is told")
	}
}
