package ort

/*
#include "native.h"

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
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

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
		runtime.AddCleanup(v, freeCopies, v.at)
	}

	v.at[device] = copied
	if fresh.Add(int64(v.Bytes())) > maxFresh {
		fresh.Store(0)
		runtime.GC()
	}
}

// on returns the native value for a run on a device. Integers, which are few, are copied for each run.
func (v *Value) on(call *call) (unsafe.Pointer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.at[call.on.device]; p != nil {
		return p, nil
	}

	var from unsafe.Pointer
	var err error
	if !v.onHost {
		from = v.at[slices.Min(slices.Collect(maps.Keys(v.at)))]
	} else if from, err = call.wrap(v.tensor); err != nil {
		return nil, err
	}

	if v.tensor.IsInt() {
		return from, nil
	}

	copied, err := call.on.uploader.upload(from)
	if err == nil {
		v.put(call.on.device, copied)
	}

	return copied, err
}

// freeCopies frees the copies of a value, and with the last one the memory of an uploader or a session that is closed.
func freeCopies(at map[int]unsafe.Pointer) {
	_ = capturing.Acquire(context.Background(), 1)
	defer capturing.Release(1)
	releaseAll(slices.Collect(maps.Values(at)))
}

func releaseAll(values []unsafe.Pointer) {
	a, err := native()
	for _, v := range values {
		if err == nil && v != nil {
			a.releaseValue(v)
		}
	}
}

// readValue returns the tensor of a native value. With elements false, for values that may lie on a device, it returns
// only kind and shape.
func readValue(value unsafe.Pointer, elements bool) (*tensor.Tensor, error) {
	a, err := native()
	if err != nil {
		return nil, err
	}

	var described C.described
	if err := a.failed(C.describe(a.table, value, &described)); err != nil {
		return nil, err
	}

	if described.rank > C.mostAxes {
		return nil, fmt.Errorf("%d axes, at most %d are supported", described.rank, C.mostAxes)
	}

	values := &tensor.Tensor{Shape: make([]int, described.rank)}
	for i := range values.Shape {
		values.Shape[i] = int(described.shape[i])
	}

	n := 0
	if elements {
		n = tensor.Size(values.Shape)
	}

	switch described._type {
	case float32Elements:
		values.Data = append([]float32{}, unsafe.Slice((*float32)(described.data), n)...)
	case int64Elements:
		values.Ints = append([]int64{}, unsafe.Slice((*int64)(described.data), n)...)
	default:
		return nil, fmt.Errorf("ONNX Runtime returned values of its type %d", described._type)
	}

	return values, nil
}
