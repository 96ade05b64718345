package ort

/*
#include "native.h"

static void *deviceMemory(table t, const char *name, int device, void **out) { // 0: no own arena; default memory
	return ((void *(*)(const char *, int, int, int, void **))t[CreateMemoryInfo])(name, 0, device, 0, out);
}
*/
import "C"

import (
	"sync"
	"unsafe"
)

// uploader copies float32 tensors into the memory of the device of its session.
type uploader struct {
	*executable
	memory unsafe.Pointer
}

// newUploader returns an uploader for the provider and the device of the options. Its arena grows only by what is
// uploaded.
func (a *api) newUploader(o Options) (*uploader, error) {
	o.MemoryLimit, o.Profile, o.Placement = 0, "", false
	options, err := o.native("")
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	u := &uploader{}
	if u.executable, err = a.compileProbe(options); err != nil {
		return nil, err
	}
	name := C.CString(map[string]string{CPU: "Cpu", CUDA: "Cuda"}[o.Provider])
	defer C.free(unsafe.Pointer(name))
	if err := a.failed(C.deviceMemory(a.table, name, C.int(o.Device), &u.memory)); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

// upload returns a copy of a value on the device. The copy may outlive the uploader, because ONNX Runtime's tensors
// hold a reference to the allocator that frees them.
func (u *uploader) upload(value unsafe.Pointer) (copied unsafe.Pointer, err error) {
	out := make([]unsafe.Pointer, 1)
	err = u.run(nil, []unsafe.Pointer{value}, out, []unsafe.Pointer{u.memory})
	return out[0], err
}

func (u *uploader) close() {
	if u.memory != nil {
		u.api.release(C.ReleaseMemoryInfo, u.memory)
	}
	u.executable.close()
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
