package ort

/*
#include "native.h"

static void *deviceMemory(table t, const char *name, int device, void **out) { // 0: no own arena; default memory
	return ((void *(*)(const char *, int, int, int, void **))t[CreateMemoryInfo])(name, 0, device, 0, out);
}
*/
import "C"

import (
	"errors"
	"sync"
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/onnx"
)

// uploader copies float32 tensors into the memory of the device of its session.
type uploader struct {
	api     *api
	session *binding.DynamicAdvancedSession
	bound   *binder
	memory  unsafe.Pointer
}

// newUploader returns an uploader for a provider and the device of the options. Its arena grows only by what is
// uploaded.
func (a *api) newUploader(o Options, provider string) (*uploader, error) {
	o.MemoryLimit, o.Profile, o.Placement = 0, "", false
	options, err := o.native(provider, "")
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	m := probeModel()
	for _, v := range append(m.Graph.Input, m.Graph.Output...) {
		v.GetType().GetTensorType().Shape = nil // any shape
	}
	model, err := onnx.Marshal(m)
	if err != nil {
		return nil, err
	}
	u := &uploader{api: a}
	if u.session, err = binding.NewDynamicAdvancedSessionWithONNXData(model, []string{"x"}, []string{"y"},
		options); err != nil {
		return nil, err
	}
	name := C.CString(map[string]string{CPU: "Cpu", CUDA: "Cuda"}[provider])
	defer C.free(unsafe.Pointer(name))
	if err = a.failed(C.deviceMemory(a.table, name, C.int(o.Device), &u.memory)); err == nil {
		u.bound, err = a.newBinder(u.session, []string{"x"}, []string{"y"})
	}
	if err != nil {
		return nil, errors.Join(err, u.close())
	}
	return u, nil
}

// upload returns a copy of a value on the device. The copy may outlive the uploader, because ONNX Runtime's tensors
// hold a reference to the allocator that frees them.
func (u *uploader) upload(value unsafe.Pointer) (copied unsafe.Pointer, err error) {
	out := make([]unsafe.Pointer, 1)
	err = u.bound.run(nil, []unsafe.Pointer{value}, []unsafe.Pointer{nil}, u.memory, out)
	return out[0], err
}

func (u *uploader) close() error {
	if u.memory != nil {
		u.api.release(C.ReleaseMemoryInfo, u.memory)
	}
	u.bound.close()
	return u.session.Destroy()
}

// busy counts the runs in flight on each device, of all sessions with several devices.
var busy = struct {
	sync.Mutex
	runs map[int]int
}{runs: map[int]int{}}

// pick returns the replica of the device with the fewest runs in flight (the first one of several). The caller calls
// done after the run.
func (s *Session) pick() (r *replica, done func()) {
	if len(s.replicas) == 1 {
		return s.replicas[0], func() {}
	}
	busy.Lock()
	defer busy.Unlock()
	r = s.replicas[0]
	for _, other := range s.replicas {
		if busy.runs[other.device] < busy.runs[r.device] {
			r = other
		}
	}
	busy.runs[r.device]++
	return r, func() {
		busy.Lock()
		defer busy.Unlock()
		busy.runs[r.device]--
	}
}
