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

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Run computes the outputs. inputs must have exactly the names that Inputs lists. Inputs of floating types take float
// tensors, inputs of integer types and bool take integer tensors, with the declared rank, fixed sizes, and one size per
// symbol. Run reads them in place; nobody may write to them during the run. The caller owns the outputs.
//
// If ctx ends, the run stops between two operators, and the error wraps the cause.
func (s *Session) Run(ctx context.Context, inputs tensor.Map) (tensor.Map, error) {
	return s.RunWith(ctx, inputs, nil)
}

// RunWith is Run with further inputs that are on the device already or are copied there once.
func (s *Session) RunWith(ctx context.Context, inputs tensor.Map, held Values) (tensor.Map, error) {
	if err := s.checkInputs(inputs, held); err != nil {
		return nil, err
	}

	s, done := s.forSizes(inputs, held)
	defer done()
	var c call
	defer c.release()
	if err := s.compute(ctx, &c, inputs, held); err != nil {
		return nil, err
	}

	out := make(tensor.Map, len(s.outputs))
	for i, info := range s.outputs {
		t, err := s.collect(i, &c)
		if err != nil {
			return nil, err
		}
		out[info.Name] = t
	}

	return out, nil
}

// RunKeep is RunWith that keeps the outputs on the device that computed them, each in memory of its own.
func (s *Session) RunKeep(ctx context.Context, inputs tensor.Map, held Values) (Values, error) {
	if err := s.checkInputs(inputs, held); err != nil {
		return nil, err
	}

	call := call{stay: true}
	defer call.release()
	if err := s.compute(ctx, &call, inputs, held); err != nil {
		return nil, err
	}

	out := make(Values, len(s.outputs))
	for i, valueInfo := range s.outputs {
		if index := s.results[i].Value; s.slots[index].stays && call.stay {
			t, err := readValue(call.outputs[index], false)
			if err != nil {
				return nil, err
			}
			v := &Value{tensor: t}
			v.put(call.on.device, call.outputs[index])
			call.outputs[index], out[valueInfo.Name] = nil, v
			continue
		}

		t, err := s.collect(i, &call)
		if err != nil {
			return nil, err
		}

		out[valueInfo.Name] = NewValue(t)
	}

	return out, nil
}

// compute runs the graph on inputs that were checked.
func (s *Session) compute(ctx context.Context, call *call, inputs tensor.Map, held Values) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.replicas == nil {
		return s.errorf("run: %w", ErrClosed)
	}

	if ctx.Err() != nil {
		return s.errorf("the run was stopped: %w", context.Cause(ctx))
	}

	on, done := s.pick()
	defer done()
	call.on, call.stay = on, call.stay && on.uploader != nil
	var err error
	if on.captured != nil {
		err = on.captured.run(ctx, s, call, inputs, held)
	} else {
		err = on.threads.do(ctx, func() error { return s.computeOn(ctx, call, inputs, held) })
	}

	runtime.KeepAlive(held) // otherwise their device memory is freed meanwhile
	if err != nil && ctx.Err() != nil {
		return s.errorf("the run was stopped: %w", context.Cause(ctx))
	}

	return err
}

// computeOn runs the replica of a call, on one of the replica's threads.
func (s *Session) computeOn(ctx context.Context, call *call, inputs tensor.Map, held Values) error {
	for _, p := range s.inputs {
		if err := call.addInput(inputs[p.Name], held[p.Name]); err != nil {
			return s.errorf("input %q: %s", p.Name, plain(err))
		}
	}

	for i, slot := range s.slots {
		if err := call.addOutput(slot); err != nil {
			return s.errorf("output %q: %s", s.nativeOutputs[i], plain(err))
		}
	}

	return s.measured(ctx, call, func(options *binding.RunOptions) error {
		return call.on.run(options, call.inputs, call.outputs, call.memory)
	})
}

// measured runs a call with its options, and adds its time to that inside ONNX Runtime.
func (s *Session) measured(ctx context.Context, call *call, run func(*binding.RunOptions) error) error {
	options, release, err := call.options(ctx)
	if err != nil {
		return s.errorf("run options: %s", plain(err))
	}
	defer release()

	runtime.LockOSThread() // to measure the time of this thread
	defer runtime.UnlockOSThread()
	began, before := time.Now(), threadTime()
	err = run(options)
	inside.Add(int64(time.Since(began)))
	insideProcessor.Add(int64(threadTime() - before))
	if err != nil {
		return s.errorf("run: %s", plain(err))
	}

	return nil
}

// Nanoseconds inside ONNX Runtime, by the clock and of processor time.
var inside, insideProcessor atomic.Int64

// NativeTime returns the time that the runs of all sessions spent inside ONNX Runtime, summed over parallel runs.
func NativeTime() time.Duration { return time.Duration(inside.Load()) }

// GoTime returns the processor time that this process spent outside of runs, for sessions of one thread. It does not
// count waiting, for example for a core that others use. It is 0 if the system does not report processor time.
func GoTime() time.Duration {
	return ProcessorTime() - time.Duration(insideProcessor.Load())
}

// options returns run options that stop the run when ctx ends, or nil if the run needs none. release frees them once no
// goroutine can use them any more.
func (c *call) options(ctx context.Context) (options *binding.RunOptions, release func(), err error) {
	if ctx.Done() == nil && !c.trim {
		return nil, func() {}, nil
	}

	if options, err = binding.NewRunOptions(); err != nil {
		return nil, nil, err
	}

	if c.trim {
		if err := c.on.api.set(options, "memory.enable_memory_arena_shrinkage", "cpu:0"); err != nil {
			options.Destroy()
			return nil, nil, err
		}
	}

	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		options.Terminate()
	})

	return options, func() {
		if !stop() {
			<-done
		}
		options.Destroy()
	}, nil
}

// slot is one output of the compiled graph. ONNX Runtime allocates outputs whose shape is not known before the run.
type slot struct {
	ints  bool
	fixed bool
	shape []int
	stays bool // it may stay on a device, because it is an output of the graph itself
}

// tensor returns memory for an output of fixed size.
func (s slot) tensor() *tensor.Tensor {
	if s.ints {
		return tensor.OfInts(make([]int64, tensor.Size(s.shape)), s.shape...)
	}
	return tensor.Reuse(s.shape...)
}

func (p *program) slots() []slot {
	slots := make([]slot, len(p.nativeOutputs))
	for i, r := range p.results {
		shape, fixed := p.outputs[i].fixed(maxFixed)
		slots[r.Value] = slot{p.outputs[i].IsInt(), fixed, shape, r.Shape < 0}
	}
	return slots
}

// call holds the native values of one run. ONNX Runtime keeps pointers into Go memory while the values live, so this
// memory is pinned until they are released.
type call struct {
	on              *replica
	stay            bool // outputs stay on the device
	trim            bool // the arena returns memory after the run
	inputs, outputs []unsafe.Pointer
	memory          []unsafe.Pointer // where new values of outputs are, for runs on a device
	made            []*tensor.Tensor // memory of outputs; nil where ONNX Runtime allocates it
	wrapped         []unsafe.Pointer // values on the memory of tensors
	pins            runtime.Pinner
}

func (c *call) addInput(t *tensor.Tensor, held *Value) (err error) {
	var pointer unsafe.Pointer
	switch {
	case held == nil:
		pointer, err = c.wrap(t)
	case c.on.uploader != nil:
		pointer, err = held.on(c)
	case !held.onHost:
		return errors.New("it lies on a device, and this session runs on the CPU")
	default:
		pointer, err = c.wrap(held.tensor)
	}

	c.inputs = append(c.inputs, pointer)
	return err
}

func (c *call) addOutput(slot slot) (err error) {
	var v unsafe.Pointer
	var t *tensor.Tensor
	if slot.fixed && !c.stay {
		t = slot.tensor()
		v, err = c.wrap(t)
	}

	c.made, c.outputs = append(c.made, t), append(c.outputs, v)
	switch u := c.on.uploader; {
	case u == nil:
	case c.stay && slot.stays:
		c.memory = append(c.memory, u.memory)
	default:
		c.memory = append(c.memory, c.on.api.memory)
	}

	return err
}

// wrap returns a native value that uses the elements of a tensor in place. The call owns it.
func (c *call) wrap(values *tensor.Tensor) (pointer unsafe.Pointer, err error) {
	data, kind := unsafe.Pointer(unsafe.SliceData(values.Data)), float32Elements
	if values.IsInt() {
		data, kind = unsafe.Pointer(unsafe.SliceData(values.Ints)), int64Elements
	}

	if values.Len() > 0 {
		c.pins.Pin(data)
	}

	shape := convert.Slice(values.Shape, func(d int) int64 { return int64(d) })
	if pointer, err = c.on.api.wrap(data, values.Bytes(), shape, kind); err == nil {
		c.wrapped = append(c.wrapped, pointer)
	}

	return pointer, err
}

func (c *call) release() {
	releaseAll(c.wrapped)
	for i, v := range c.outputs {
		if c.made[i] == nil && v != nil {
			c.on.api.releaseValue(v)
		}
	}
	c.pins.Unpin()
}

func (c *call) tensor(i int) (*tensor.Tensor, error) {
	if t := c.made[i]; t != nil {
		return t, nil
	}
	return readValue(c.outputs[i], true)
}

func (s *Session) collect(i int, c *call) (*tensor.Tensor, error) {
	r, valueInfo := s.results[i], s.outputs[i]
	values, err := c.tensor(r.Value)
	if err == nil && r.Shape >= 0 {
		var shape *tensor.Tensor
		if shape, err = c.tensor(r.Shape); err == nil {
			values.Shape = convert.Slice(shape.Ints, func(d int64) int { return int(d) })
		}
	}

	if err != nil {
		return nil, s.errorf("output %s: %w", valueInfo, err)
	}

	if valueInfo.Type == onnx.TensorProto_UINT64 && slices.IndexFunc(values.Ints,
		func(v int64) bool { return v < 0 }) >= 0 {
		return nil, s.errorf("output %s holds values of 2^63 and more, which int64 cannot hold", valueInfo)
	}

	return values, nil
}
