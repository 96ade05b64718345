package ort

import (
	"sync"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/tensor"
)

// probe is a session of one node, whose runs trim the arena.
var probe = sync.OnceValues(func() (*Session, error) { return NewSession(probeModel(), Options{}) })

// TrimMemory returns memory that no run uses to the system: buffers that the arena of all sessions keeps for later
// runs, and freed memory of the C heap. Runs in flight keep their buffers; later runs allocate again.
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
