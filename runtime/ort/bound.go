package ort

/*
#include <string.h>
#include "native.h"

// runBound runs a session with values bound to its inputs. Outputs go to the values in ready, or to memory of a device
// where ready is NULL. out receives handles to all outputs, also after an error (then some may be NULL).
static void *runBound(table t, void *session, void *options, size_t inputs, char *const *in, void *const *given,
	size_t outputs, char *const *names, void *const *ready, void *memory, void **out) {
	void *bound = NULL, *host = NULL, **values = NULL;
	size_t count = 0;
	void *status = ((void *(*)(void *, void **))t[CreateIoBinding])(session, &bound);
	for (size_t i = 0; !status && i < inputs; i++)
		status = ((void *(*)(void *, const char *, void *))t[BindInput])(bound, in[i], given[i]);
	for (size_t i = 0; !status && i < outputs; i++)
		status = ready[i] ? ((void *(*)(void *, const char *, void *))t[BindOutput])(bound, names[i], ready[i])
			: ((void *(*)(void *, const char *, void *))t[BindOutputToDevice])(bound, names[i], memory);
	if (!status) status = ((void *(*)(void *))t[SynchronizeBoundInputs])(bound);
	if (!status) status = ((void *(*)(void *, void *, void *))t[RunWithBinding])(session, options, bound);
	if (!status) status = ((void *(*)(void *))t[SynchronizeBoundOutputs])(bound);
	if (!status) status = ((void *(*)(void **))t[GetAllocatorWithDefaultOptions])(&host);
	if (!status)
		status = ((void *(*)(void *, void *, void ***, size_t *))t[GetBoundOutputValues])(bound, host, &values, &count);
	if (values) {
		memcpy(out, values, (count < outputs ? count : outputs) * sizeof *out);
		void *other = ((void *(*)(void *, void *))t[AllocatorFree])(host, values);
		if (!status) status = other;
	}
	if (bound) ((void (*)(void *))t[ReleaseIoBinding])(bound);
	return status;
}

enum { mostAxes = 16 };

typedef struct { int type; size_t rank; int64_t shape[mostAxes]; void *data; } described;

static void *describe(table t, void *value, described *out) {
	void *info = NULL;
	void *status = ((void *(*)(void *, void **))t[GetTensorTypeAndShape])(value, &info);
	if (!status) status = ((void *(*)(void *, int *))t[GetTensorElementType])(info, &out->type);
	if (!status) status = ((void *(*)(void *, size_t *))t[GetDimensionsCount])(info, &out->rank);
	if (!status && out->rank <= mostAxes)
		status = ((void *(*)(void *, int64_t *, size_t))t[GetDimensions])(info, out->shape, out->rank);
	if (!status) status = ((void *(*)(void *, void **))t[GetTensorMutableData])(value, &out->data);
	if (info) ((void (*)(void *))t[ReleaseTensorTypeAndShapeInfo])(info);
	return status;
}
*/
import "C"

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Value is a constant tensor that runs on a device read from the device's memory: either a run computed it there
// (Session.RunKeep), or the first run that takes it copies it there. On the CPU it is the tensor itself. Many runs may
// use it at the same time. Its device memory is freed after the garbage collector finds it unused.
type Value struct {
	tensor *tensor.Tensor // without elements if these lie only on a device
	onHost bool

	mu sync.Mutex
	at map[int]unsafe.Pointer // copies, by device
}

// Values are values by the name of a graph's input or output.
type Values map[string]*Value

// NewValue returns the value of a tensor, which nobody may write to afterwards.
func NewValue(t *tensor.Tensor) *Value { return &Value{tensor: t, onHost: true} }

// Bytes returns the size of the elements in bytes.
func (v *Value) Bytes() int {
	if v.tensor.IsInt() {
		return 8 * tensor.Size(v.tensor.Shape)
	}
	return 4 * tensor.Size(v.tensor.Shape)
}

// Bytes returns the size of all elements in bytes.
func (m Values) Bytes() (n int) {
	for _, v := range m {
		n += v.Bytes()
	}
	return n
}

// maxFresh bounds the bytes of new device values before a garbage collection. Go's collector does not see device
// memory, so it must be asked to find unused values.
const maxFresh = 256 << 20

var fresh atomic.Int64

// put records a copy on a device. The caller holds v.mu, unless no other goroutine knows v.
func (v *Value) put(device int, copied unsafe.Pointer) {
	if v.at == nil {
		v.at = map[int]unsafe.Pointer{}
		runtime.AddCleanup(v, func(at map[int]unsafe.Pointer) { releaseAll(slices.Collect(maps.Values(at))) }, v.at)
	}
	v.at[device] = copied
	if fresh.Add(int64(v.Bytes())) > maxFresh {
		fresh.Store(0)
		runtime.GC()
	}
}

// on returns the native value for a run on a device. Integers, which are few, are copied for each run.
func (v *Value) on(device int, u *uploader, c *call) (unsafe.Pointer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.at[device]; p != nil {
		return p, nil
	}
	var from unsafe.Pointer
	if v.onHost {
		host, err := c.wrap(v.tensor)
		if err != nil {
			return nil, err
		}
		c.more = append(c.more, host)
		if from, err = valueOf(host); err != nil {
			return nil, err
		}
	} else {
		from = v.at[slices.Min(slices.Collect(maps.Keys(v.at)))]
	}
	if v.tensor.IsInt() {
		return from, nil
	}
	copied, err := u.upload(from)
	if err == nil {
		v.put(device, copied)
	}
	return copied, err
}

func valueOf(v binding.Value) (unsafe.Pointer, error) {
	p, err := pointerIn(v, "ortValue")
	if err != nil {
		return nil, err
	}
	return *p, nil
}

func releaseAll(values []unsafe.Pointer) {
	a, err := native()
	for _, v := range values {
		if err == nil && v != nil {
			a.releaseValue(v)
		}
	}
}

// binder runs a session with values bound to its inputs and outputs.
type binder struct {
	api             *api
	session         unsafe.Pointer
	inputs, outputs **C.char
	names           []unsafe.Pointer // C memory to free
}

func (a *api) newBinder(s *binding.DynamicAdvancedSession, inputs, outputs []string) (*binder, error) {
	p, err := pointerIn(s, "s", "ortSession")
	if err != nil {
		return nil, err
	}
	b := &binder{api: a, session: *p}
	b.inputs, b.outputs = b.list(inputs), b.list(outputs)
	return b, nil
}

func (b *binder) list(names []string) **C.char {
	list := C.malloc(C.size_t(len(names)) * C.size_t(unsafe.Sizeof(uintptr(0))))
	b.names = append(b.names, list)
	for i, name := range names {
		at := C.CString(name)
		unsafe.Slice((**C.char)(list), len(names))[i] = at
		b.names = append(b.names, unsafe.Pointer(at))
	}
	return (**C.char)(list)
}

func (b *binder) close() {
	if b == nil {
		return
	}
	for _, p := range b.names {
		C.free(p)
	}
}

// run passes the inputs given, in the session's order, and stores the outputs in ready, or in memory where ready is
// nil. It returns all outputs in out.
func (b *binder) run(options *binding.RunOptions, given, ready []unsafe.Pointer, memory unsafe.Pointer,
	out []unsafe.Pointer) error {
	var native unsafe.Pointer
	if options != nil {
		p, err := pointerIn(options, "o")
		if err != nil {
			return err
		}
		native = *p
	}
	return b.api.failed(C.runBound(b.api.table, b.session, native, C.size_t(len(given)), b.inputs,
		unsafe.SliceData(given), C.size_t(len(ready)), b.outputs, unsafe.SliceData(ready), memory,
		unsafe.SliceData(out)))
}

// runBound runs a call with values bound to memory of the replica's device.
func (r *replica) runBound(c *call, options *binding.RunOptions) (err error) {
	given, ready := make([]unsafe.Pointer, len(c.inputs)), make([]unsafe.Pointer, len(c.outputs))
	for i, v := range c.inputs {
		if held := c.held[i]; held != nil {
			given[i], err = held.on(r.device, r.held.in.uploader, c)
		} else {
			given[i], err = valueOf(v)
		}
		if err != nil {
			return err
		}
	}
	for i, v := range c.outputs {
		if v != nil {
			if ready[i], err = valueOf(v); err != nil {
				return err
			}
		}
	}
	memory := r.bound.api.memory
	if c.stay {
		memory = r.held.in.uploader.memory
	}
	c.device, c.results = r.device, make([]unsafe.Pointer, len(c.outputs))
	return r.bound.run(options, given, ready, memory, c.results)
}

// stayed returns an output as a value on the device, or nil if the run was not bound or the output was flattened.
func (c *call) stayed(of onnx.AdaptedOutput) (*Value, error) {
	if c.results == nil || of.Shape >= 0 {
		return nil, nil
	}
	t, err := readValue(c.results[of.Value], false)
	if err != nil {
		return nil, err
	}
	v := &Value{tensor: t}
	v.put(c.device, c.results[of.Value])
	c.results[of.Value] = nil
	return v, nil
}

// readValue returns the tensor of a native value. With elements false, for values that may lie on a device, it returns
// only kind and shape.
func readValue(of unsafe.Pointer, elements bool) (*tensor.Tensor, error) {
	a, err := native()
	if err != nil {
		return nil, err
	}
	var d C.described
	if err := a.failed(C.describe(a.table, of, &d)); err != nil {
		return nil, err
	}
	if d.rank > C.mostAxes {
		return nil, fmt.Errorf("%d axes, at most %d are supported", d.rank, C.mostAxes)
	}
	t := &tensor.Tensor{Shape: make([]int, d.rank)}
	for i := range t.Shape {
		t.Shape[i] = int(d.shape[i])
	}
	n := 0
	if elements {
		n = tensor.Size(t.Shape)
	}
	switch d._type {
	case 1: // float32
		t.Data = append([]float32{}, unsafe.Slice((*float32)(d.data), n)...)
	case 7: // int64
		t.Ints = append([]int64{}, unsafe.Slice((*int64)(d.data), n)...)
	default:
		return nil, fmt.Errorf("ONNX Runtime returned values of its type %d", d._type)
	}
	return t, nil
}
