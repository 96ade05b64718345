package ort

import (
	"sync"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/tensor"
)

// probe is a session of one node, whose runs show to what they are given.
var probe = sync.OnceValues(func() (*Session, error) { return NewSession(probeModel(), Options{}) })

// TrimMemory gives memory back to the system that no run uses at present: buffers that the arena of all sessions keeps
// for the next run, and the freed memory of the C heap. Runs that go on keep theirs, and the next ones take it anew.
func TrimMemory() error {
	s, err := probe()
	if err != nil {
		return err
	}
	a, err := native()
	if err != nil {
		return err
	}
	options, err := binding.NewRunOptions()
	if err != nil {
		return s.errorf("run options: %s", oneLine(err))
	}
	defer options.Destroy()
	if err := a.set(options, "memory.enable_memory_arena_shrinkage", "cpu:0"); err != nil {
		return s.errorf("run options: %s", oneLine(err))
	}
	var c call
	defer c.release()
	if err := c.addInput(tensor.New(1), nil); err != nil {
		return s.errorf("%s", oneLine(err))
	}
	if err := c.addOutput(s.slots[0]); err != nil {
		return s.errorf("%s", oneLine(err))
	}
	if err := s.replicas[0].inner.RunWithOptions(c.inputs, c.outputs, options); err != nil {
		return s.errorf("returning memory: %s", oneLine(err))
	}
	returnHeap()
	return nil
}
