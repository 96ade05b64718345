package ort

/*
#include "native.h"

static void *deviceMemory(table t, const char *name, int device, void **out) { // 0: no own arena; default memory
	return ((void *(*)(const char *, int, int, int, void **))t[CreateMemoryInfo])(name, 0, device, 0, out);
}

// freeMemory asks CUDA's driver, through the functions that driverFunctions names, for the free bytes of a device.
static int64_t freeMemory(void *const *f, int device) {
	int place = 0, failed;
	size_t free = 0, total = 0;
	void *context = NULL;
	if (((int (*)(unsigned))f[0])(0) || ((int (*)(int *, int))f[1])(&place, device)) return -1;
	if (((int (*)(void **, int))f[2])(&context, place)) return -1;
	failed = ((int (*)(void *))f[3])(context);
	if (!failed) {
		failed = ((int (*)(size_t *, size_t *))f[4])(&free, &total);
		((int (*)(void **))f[5])(&context);
	}
	((int (*)(int))f[6])(place);
	return failed ? -1 : (int64_t)free;
}
*/
import "C"

import (
	"context"
	"runtime"
	"sync"
	"unsafe"
)

// OnDevice reports whether runs of a session with these options take place on a device, or as if on one (Bind).
func (o Options) OnDevice() bool { return o.WithProvider().onDevice() }

// driverFunctions are functions of CUDA's driver, whose devices have the same numbers as the provider's. The context
// that they retain for a device is the one that the provider uses.
var driverFunctions = []string{"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
	"cuMemGetInfo_v2", "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2"}

// FreeMemory returns the free bytes of the device that the session runs on, the fewest of several, or a negative number
// if they are unknown, as on the CPU.
func (s *Session) FreeMemory() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.provider != CUDA {
		return -1
	}
	library := map[bool]string{true: "nvcuda.dll", false: "libcuda.so.1"}[runtime.GOOS == "windows"]
	var functions []unsafe.Pointer
	for _, name := range driverFunctions {
		f, err := symbol(library, name)
		if err != nil {
			return -1
		}
		functions = append(functions, f)
	}
	least := int64(-1)
	for i, r := range s.replicas {
		_ = r.threads.do(context.Background(), func() error {
			free := int64(C.freeMemory(unsafe.SliceData(functions), C.int(r.device)))
			if i == 0 || free < least {
				least = free
			}
			return nil
		})
	}
	return least
}

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
