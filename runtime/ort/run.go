package ort

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Run computes the named outputs, or all if none are named. inputs must have exactly the names that Inputs lists.
// Inputs of floating types take float tensors, inputs of integer types and bool take integer tensors, with the declared
// rank, fixed sizes, and one size per symbol. Run reads them in place; nobody may write to them during the run. The
// caller owns the outputs.
//
// ONNX Runtime computes all outputs of the session in any case; Options.Outputs saves work. If ctx ends, the run stops
// between two operators, and the error wraps the cause.
func (s *Session) Run(ctx context.Context, inputs tensor.Map, outputs ...string) (tensor.Map, error) {
	return s.run(ctx, inputs, nil, outputs)
}

// RunWith runs the graph for all outputs, with further inputs that are on the device already or are copied there once.
func (s *Session) RunWith(ctx context.Context, inputs tensor.Map, held Values) (tensor.Map, error) {
	return s.run(ctx, inputs, held, nil)
}

func (s *Session) run(ctx context.Context, inputs tensor.Map, held Values, outputs []string) (tensor.Map, error) {
	want, err := s.choose(outputs)
	if err != nil {
		return nil, err
	}
	c := call{binds: s.binds}
	defer c.release()
	if err := s.compute(ctx, &c, inputs, held); err != nil {
		return nil, err
	}
	out := make(tensor.Map, len(want))
	for _, i := range want {
		if out[s.outputs[i].Name], err = s.collect(i, &c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RunKeep is RunWith that keeps the outputs on the device that computed them.
func (s *Session) RunKeep(ctx context.Context, inputs tensor.Map, held Values) (Values, error) {
	c := call{binds: s.binds, stay: s.binds}
	defer c.release()
	if err := s.compute(ctx, &c, inputs, held); err != nil {
		return nil, err
	}
	out := make(Values, len(s.outputs))
	for i, p := range s.outputs {
		v, err := c.stayed(s.results[i])
		if err == nil && v == nil {
			var t *tensor.Tensor
			if t, err = s.collect(i, &c); err == nil {
				v = NewValue(t)
			}
		}
		if err != nil {
			return nil, err
		}
		out[p.Name] = v
	}
	return out, nil
}

func (s *Session) compute(ctx context.Context, c *call, inputs tensor.Map, held Values) error {
	if err := s.checkInputs(inputs, held); err != nil {
		return err
	}
	for _, p := range s.inputs {
		if err := c.addInput(inputs[p.Name], held[p.Name]); err != nil {
			return s.errorf("input %q: %s", p.Name, oneLine(err))
		}
	}
	for i, slot := range s.slots {
		if err := c.addOutput(slot); err != nil {
			return s.errorf("output %q: %s", s.nativeOutputs[i], oneLine(err))
		}
	}
	return s.invoke(ctx, c)
}

func (s *Session) choose(names []string) ([]int, error) {
	want := make([]int, 0, len(s.outputs))
	if len(names) == 0 {
		for i := range s.outputs {
			want = append(want, i)
		}
		return want, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(s.outputs, func(p ValueInfo) bool { return p.Name == name })
		if i < 0 {
			return nil, s.errorf("no output %q; it has %s", name,
				joined(s.outputs, func(v ValueInfo) string { return v.Name }))
		}
		want = append(want, i)
	}
	return want, nil
}

func (s *Session) invoke(ctx context.Context, c *call) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.replicas == nil {
		return s.errorf("run: %w", ErrClosed)
	}
	if ctx.Err() != nil {
		return s.errorf("the run was stopped: %w", context.Cause(ctx))
	}
	options, release, err := terminator(ctx)
	if err != nil {
		return s.errorf("run options: %s", oneLine(err))
	}
	on, done := s.pick()
	defer done()
	runtime.LockOSThread() // to measure the time of this thread
	began := time.Now()
	before, _ := processorTime()
	if on.bound != nil {
		err = on.runBound(c, options)
	} else {
		err = on.inner.RunWithOptions(c.inputs, c.outputs, options)
	}
	after, _ := processorTime()
	inside.Add(int64(time.Since(began)))
	insideProcessor.Add(int64(after - before))
	runtime.UnlockOSThread()
	release()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return s.errorf("the run was stopped: %w", context.Cause(ctx))
	}
	return s.errorf("run: %s", oneLine(err))
}

// Nanoseconds inside ONNX Runtime, by the clock and of processor time.
var inside, insideProcessor atomic.Int64

// NativeTime returns the time that the runs of all sessions spent inside ONNX Runtime, summed over parallel runs.
func NativeTime() time.Duration { return time.Duration(inside.Load()) }

// GoTime returns the processor time that this process spent outside of runs, for sessions of one thread. It does not
// count waiting, for example for a core that others use. It is 0 if the system does not report processor time.
func GoTime() time.Duration {
	_, process := processorTime()
	return process - time.Duration(insideProcessor.Load())
}

// terminator returns run options that stop the run when ctx ends, or nil if ctx cannot end. release frees them once no
// goroutine can use them any more.
func terminator(ctx context.Context) (o *binding.RunOptions, release func(), err error) {
	if ctx.Done() == nil {
		return nil, func() {}, nil
	}
	if o, err = binding.NewRunOptions(); err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		o.Terminate()
	})
	return o, func() {
		if !stop() {
			<-done
		}
		o.Destroy()
	}, nil
}

// slot is one output of the compiled graph. ONNX Runtime allocates outputs whose shape is not known before the run.
type slot struct {
	ints  bool
	fixed bool
	shape []int
}

func (p *program) slots() []slot {
	slots := make([]slot, len(p.nativeOutputs))
	for i, r := range p.results {
		shape, fixed := p.outputs[i].fixed()
		slots[r.Value] = slot{ints: p.outputs[i].IsInt(), fixed: fixed, shape: shape}
	}
	return slots
}

// call holds the native values of one run. ONNX Runtime keeps pointers into Go memory while the values live, so this
// memory is pinned until they are released.
type call struct {
	inputs, outputs []binding.Value // nil: an input in held, an output that ONNX Runtime allocates
	held            []*Value
	more            []binding.Value  // values that are copied to a device
	binds           bool             // values are bound to memory of a device
	stay            bool             // outputs stay on the device
	results         []unsafe.Pointer // all outputs of a bound run
	device          int              // of a bound run
	pins            runtime.Pinner
}

func (c *call) addInput(t *tensor.Tensor, held *Value) error {
	switch {
	case held == nil:
	case c.binds:
		c.inputs, c.held = append(c.inputs, nil), append(c.held, held)
		return nil
	case !held.onHost:
		return errors.New("it lies on a device, and this session runs on the CPU")
	default:
		t = held.tensor
	}
	v, err := c.wrap(t)
	if err == nil {
		c.inputs, c.held = append(c.inputs, v), append(c.held, nil)
	}
	return err
}

func (c *call) addOutput(s slot) (err error) {
	var v binding.Value
	switch n := tensor.Size(s.shape); {
	case !s.fixed || c.stay:
	case s.ints:
		v, err = wrap(&c.pins, make([]int64, n), s.shape)
	default:
		v, err = wrap(&c.pins, make([]float32, n), s.shape)
	}
	if err == nil {
		c.outputs = append(c.outputs, v)
	}
	return err
}

// wrap creates a native value that uses the elements of a tensor in place.
func (c *call) wrap(t *tensor.Tensor) (binding.Value, error) {
	if t.IsInt() {
		return wrap(&c.pins, t.Ints, t.Shape)
	}
	return wrap(&c.pins, t.Data, t.Shape)
}

func (c *call) release() {
	for _, list := range [][]binding.Value{c.inputs, c.outputs, c.more} {
		for _, v := range list {
			if v != nil {
				v.Destroy()
			}
		}
	}
	releaseAll(c.results)
	c.pins.Unpin()
}

// wrap creates a native value that uses data in place; the element of a scalar is copied.
func wrap[T float32 | int64](pins *runtime.Pinner, data []T, shape []int) (binding.Value, error) {
	if len(shape) == 0 {
		v, err := binding.NewScalar(data[0])
		if err != nil {
			return nil, err
		}
		return v, nil
	}
	if len(data) > 0 {
		pins.Pin(&data[0])
	}
	dims := make(binding.Shape, len(shape))
	for i, d := range shape {
		dims[i] = int64(d)
	}
	v, err := binding.NewTensor(dims, data)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (c *call) tensor(i int) (*tensor.Tensor, error) {
	if v := c.outputs[i]; v != nil {
		return unwrap(v)
	}
	return readValue(c.results[i], true)
}

func (s *Session) collect(i int, c *call) (*tensor.Tensor, error) {
	r, p := s.results[i], s.outputs[i]
	t, err := c.tensor(r.Value)
	if err == nil && r.Shape >= 0 {
		var shape *tensor.Tensor
		if shape, err = c.tensor(r.Shape); err == nil {
			t.Shape = make([]int, len(shape.Ints))
			for k, d := range shape.Ints {
				t.Shape[k] = int(d)
			}
		}
	}
	if err != nil {
		return nil, s.errorf("output %s: %w", p, err)
	}
	if p.Type == onnx.TensorProto_UINT64 && slices.IndexFunc(t.Ints, func(v int64) bool { return v < 0 }) >= 0 {
		return nil, s.errorf("output %s holds values of 2^63 and more, which int64 cannot hold", p)
	}
	return t, nil
}
