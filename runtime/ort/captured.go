package ort

/*
#include "native.h"

static void *deviceAllocator(table t, void *session, void *memory, void **allocator) {
	return ((void *(*)(void *, void *, void **))t[CreateAllocator])(session, memory, allocator);
}

static void *dataOf(table t, void *value, void **data) {
	return ((void *(*)(void *, void **))t[GetTensorMutableData])(value, data);
}

// allocate creates a value in the memory of an allocator, which must outlive it.
static void *allocate(table t, void *allocator, const int64_t *shape, size_t rank, int type, void **value,
	void **data) {
	void *status = ((void *(*)(void *, const int64_t *, size_t, int, void **))t[CreateTensorAsOrtValue])(allocator,
		shape, rank, type, value);
	return status ? status : dataOf(t, *value, data);
}

static void *bind(table t, void *session, size_t inputs, char *const *in, void *const *given, size_t outputs,
	char *const *names, void *const *to, void **out) {
	void *status = ((void *(*)(void *, void **))t[CreateIoBinding])(session, out);
	for (size_t i = 0; !status && i < inputs; i++)
		status = ((void *(*)(void *, const char *, void *))t[BindInput])(*out, in[i], given[i]);
	for (size_t i = 0; !status && i < outputs; i++)
		status = ((void *(*)(void *, const char *, void *))t[BindOutput])(*out, names[i], to[i]);
	return status;
}

static void *runAsBound(table t, void *session, void *options, void *bound) {
	return ((void *(*)(void *, void *, void *))t[RunWithBinding])(session, options, bound);
}
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// captured is a replica for inputs and outputs of fixed sizes. Its inputs and outputs lie at fixed addresses of the
// device, so that a CUDA device captures the kernels of a run as one graph and later runs replay it. Runs follow each
// other on one thread, which owns the captured graph (ONNX Runtime's issues 10423, 17355, 18509).
type captured struct {
	*executable
	device    int
	cuda      *cudaRuntime
	stream    unsafe.Pointer // of CUDA, in which everything happens
	allocator unsafe.Pointer
	binding   unsafe.Pointer
	in, out   []buffer
	own       *threads

	mu sync.Mutex // locked during a run
}

// buffer is a value at a fixed address of a device.
type buffer struct {
	value, data unsafe.Pointer
	bytes       int
	held        *Value         // whose elements it holds; nil after a tensor
	pinned      unsafe.Pointer // memory of the host through which large tensors come; nil for others
}

// Tensors of largeBytes and more are copied to the device through pinned memory: all cores copy parts of pinnedPart
// bytes there, and the device fetches each as soon as it is complete. A copy from other memory takes several times as
// long, because the driver does the same on one core.
const largeBytes, pinnedPart = 1 << 20, 1 << 21

// newCaptured returns what a graph needs before it is compiled: on CUDA, a stream of the calling thread's device.
func newCaptured(o Options) (c *captured, err error) {
	c = &captured{device: o.Device, cuda: onCPU, own: &threads{}}
	if o.Provider == CUDA {
		if c.cuda, err = loadCUDA(); err != nil {
			return c, err
		}
	}

	if err = c.cuda.use(c.device); err == nil {
		c.stream, err = c.cuda.stream()
	}

	return c, err
}

// capture allocates inputs and outputs of a compiled replica on the captured graph's thread, and runs it there. No
// other call may be in progress (see capturing).
func (r *replica) capture(program *program) error {
	captured, api, slots := r.captured, r.api, program.slots()
	captured.executable = r.executable
	if err := captured.cuda.use(captured.device); err != nil {
		return err
	}

	if err := api.failed(C.deviceAllocator(api.table, r.uploader.session, r.uploader.memory,
		&captured.allocator)); err != nil {
		return err
	}

	for _, info := range program.inputs {
		shape, _ := info.fixed(math.MaxInt)
		if err := captured.add(&captured.in, shape, info.IsInt()); err != nil {
			return fmt.Errorf("input %q: %w", info.Name, err)
		}
	}

	for i, s := range slots {
		if err := captured.add(&captured.out, s.shape, s.ints); err != nil {
			return fmt.Errorf("output %q: %w", program.nativeOutputs[i], err)
		}
	}

	in, out := values(captured.in), values(captured.out)
	if err := api.failed(C.bind(api.table, r.session, C.size_t(len(in)), r.executable.inputs.list, unsafe.SliceData(in),
		C.size_t(len(out)), r.executable.outputs.list, unsafe.SliceData(out), &captured.binding)); err != nil {
		return err
	}

	return captured.first()
}

// fixedSizes reports whether all inputs and outputs of a program have fixed sizes. Inputs have those of tensors that a
// run was given, so no bound is needed.
func (p *program) fixedSizes() bool {
	open := func(v ValueInfo) bool { _, fixed := v.fixed(math.MaxInt); return !fixed }
	return !slices.ContainsFunc(p.inputs, open) && !slices.ContainsFunc(p.slots(),
		func(s slot) bool { return !s.fixed })
}

func values(all []buffer) []unsafe.Pointer {
	return convert.Slice(all, func(b buffer) unsafe.Pointer { return b.value })
}

// add allocates a value.
func (c *captured) add(to *[]buffer, shape []int, ints bool) error {
	buffer, kind := buffer{bytes: 4 * tensor.Size(shape)}, float32Elements
	if ints {
		buffer.bytes, kind = 2*buffer.bytes, int64Elements
	}

	size := convert.Slice(shape, func(d int) C.int64_t { return C.int64_t(d) })
	err := c.api.failed(C.allocate(c.api.table, c.allocator, unsafe.SliceData(size), C.size_t(len(size)), C.int(kind),
		&buffer.value, &buffer.data))
	if err == nil {
		*to = append(*to, buffer)
	}

	return err
}

// warmUps is the number of runs before a capture, after which the arena needs no more memory: an allocation fails in a
// capture.
const warmUps = 2

// first runs the graph on zeros, which captures it: memory that nobody wrote could hold indices out of range.
func (c *captured) first() error {
	if err := c.zero(); err != nil {
		return err
	}

	options, err := binding.NewRunOptions()
	if err != nil {
		return err
	}
	defer options.Destroy()

	if err := c.api.set(options, "gpu_graph_id", "-1"); err != nil { // operator by operator
		return err
	}

	for range warmUps {
		if err := c.replay(options); err != nil {
			return err
		}
	}

	if err = c.replay(nil); err != nil {
		c.cuda.abandon(c.stream)
	}

	return err
}

// zero writes zeros to the inputs, and pins memory of the host for the large ones.
func (c *captured) zero() (err error) {
	most := 0
	for _, buffer := range c.in {
		most = max(most, buffer.bytes)
	}

	zeros := make([]byte, most)
	defer runtime.KeepAlive(zeros) // the device reads them until the stream is done, also after an error
	for i, buffer := range c.in {
		if err == nil && buffer.bytes >= largeBytes {
			c.in[i].pinned, err = c.cuda.pin(buffer.bytes)
		}

		if err == nil {
			err = c.cuda.copy(buffer.data, unsafe.Pointer(unsafe.SliceData(zeros)), buffer.bytes, c.stream)
		}
	}

	return cmp.Or(err, c.cuda.wait(c.stream))
}

// run computes a call with fixed sizes: it copies the inputs to their fixed memory, replays the graph, and copies the
// outputs to tensors of the host.
func (c *captured) run(ctx context.Context, session *Session, call *call, inputs tensor.Map, held Values) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := call.on.threads.enter(ctx); err != nil {
		return err
	}
	defer call.on.threads.leave()

	for _, slot := range session.slots {
		call.made = append(call.made, slot.tensor())
	}

	return c.own.call(func() error {
		err := c.compute(ctx, session, call, inputs, held)
		return cmp.Or(err, c.cuda.wait(c.stream)) // a failed run has copies in flight too
	})
}

func (c *captured) compute(ctx context.Context, session *Session, call *call, inputs tensor.Map, held Values) error {
	for i, info := range session.inputs {
		if err := c.fill(&c.in[i], inputs[info.Name], held[info.Name], call); err != nil {
			return session.errorf("input %q: %s", info.Name, plain(err))
		}
	}

	if err := session.measured(ctx, call, c.replay); err != nil {
		return err
	}

	for i, b := range c.out {
		if b.bytes == 0 {
			continue
		}
		data := elements(call.made[i])
		call.pins.Pin(data)
		if err := c.cuda.copy(data, b.data, b.bytes, c.stream); err != nil {
			return session.errorf("output %q: %s", session.nativeOutputs[i], plain(err))
		}
	}

	return nil
}

// fill copies an input to its fixed memory, unless that holds it already.
func (c *captured) fill(buffer *buffer, t *tensor.Tensor, held *Value, call *call) error {
	var from unsafe.Pointer
	switch {
	case held != nil && held == buffer.held || buffer.bytes == 0:
		return nil
	case held == nil && buffer.pinned != nil:
		buffer.held = nil
		return c.throughPinned(buffer, unsafe.Slice((*byte)(elements(t)), buffer.bytes))
	case held == nil:
		from = elements(t)
		call.pins.Pin(from)
	default:
		value, err := held.on(call)
		if err == nil {
			err = c.api.failed(C.dataOf(c.api.table, value, &from))
		}
		if err != nil {
			return err
		}
	}

	buffer.held = nil
	if err := c.cuda.copy(buffer.data, from, buffer.bytes, c.stream); err != nil {
		return err
	}

	buffer.held = held
	return nil
}

// throughPinned copies elements of the host to the device, in the order of the stream.
func (c *captured) throughPinned(buffer *buffer, from []byte) error {
	to := unsafe.Slice((*byte)(buffer.pinned), buffer.bytes)
	parts := (len(from) + pinnedPart - 1) / pinnedPart
	done := make([]chan struct{}, parts)
	for i := range done {
		done[i] = make(chan struct{})
	}

	part := func(i int) (begin, end int) { return i * pinnedPart, min((i+1)*pinnedPart, len(from)) }
	var next atomic.Int64
	for range min(parts, runtime.GOMAXPROCS(0)) {
		go func() {
			for i := int(next.Add(1)) - 1; i < parts; i = int(next.Add(1)) - 1 {
				begin, end := part(i)
				copy(to[begin:end], from[begin:end])
				close(done[i])
			}
		}()
	}

	var err error
	for i := range done { // also after an error: the memory of from is the caller's afterwards
		<-done[i]
		begin, end := part(i)
		if err == nil {
			err = c.cuda.copy(unsafe.Add(buffer.data, begin), unsafe.Pointer(&to[begin]), end-begin, c.stream)
		}
	}

	return err
}

func elements(t *tensor.Tensor) unsafe.Pointer {
	if t.IsInt() {
		return unsafe.Pointer(unsafe.SliceData(t.Ints))
	}
	return unsafe.Pointer(unsafe.SliceData(t.Data))
}

func (c *captured) replay(options *binding.RunOptions) error {
	return c.api.failed(C.runAsBound(c.api.table, c.session, handle(options), c.binding))
}

// release frees what the graph holds, before its session is closed.
func (c *captured) release() (err error) {
	if c == nil {
		return nil
	}

	err = c.cuda.use(c.device)
	if c.binding != nil {
		c.api.release(C.ReleaseIoBinding, c.binding)
	}

	for _, b := range c.in {
		if b.pinned != nil {
			err = errors.Join(err, c.cuda.unpin(b.pinned))
		}
	}

	releaseAll(values(append(c.in, c.out...)))
	if c.allocator != nil {
		c.api.release(C.ReleaseAllocator, c.allocator)
	}

	return err
}

// close ends the thread and the stream, after the session is closed.
func (c *captured) close() error {
	if c == nil {
		return nil
	}

	c.own.end()
	return c.cuda.destroy(c.stream)
}
