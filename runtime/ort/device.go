package ort

/*
#include <string.h>
#include "native.h"

static void *deviceMemory(table t, const char *name, int device, void **out) { // 0: no own arena; default memory
	return ((void *(*)(const char *, int, int, int, void **))t[CreateMemoryInfo])(name, 0, device, 0, out);
}

// The functions of CUDA's runtime library that copies to and from fixed device memory need. They return 0 or an error.
// Below, NULL in place of them stands for the CPU.
typedef struct {
	int (*setDevice)(int device);
	int (*streamCreate)(void **stream, unsigned flags);
	int (*streamDestroy)(void *stream);
	int (*memcpyAsync)(void *to, const void *from, size_t bytes, int kind, void *stream);
	int (*streamSynchronize)(void *stream);
	int (*streamEndCapture)(void *stream, void **graph);
	int (*graphDestroy)(void *graph);
	int (*memGetInfo)(size_t *free, size_t *total);
	int (*hostAlloc)(void **memory, size_t bytes, unsigned flags);
	int (*freeHost)(void *memory);
	const char *(*getErrorString)(int error);
} cuda;

enum { fromDescribed = 4, ownOrder = 1 }; // cudaMemcpyDefault, cudaStreamNonBlocking

static int cudaDevice(const cuda *c, int device) { return c ? c->setDevice(device) : 0; }
static int cudaStream(const cuda *c, void **stream) { return c ? c->streamCreate(stream, ownOrder) : 0; }
static int cudaDestroy(const cuda *c, void *stream) { return c && stream ? c->streamDestroy(stream) : 0; }
static int cudaWait(const cuda *c, void *stream) { return c ? c->streamSynchronize(stream) : 0; }
static int cudaUnpin(const cuda *c, void *memory) { return c ? c->freeHost(memory) : (free(memory), 0); }
static int cudaCopy(const cuda *c, void *to, const void *from, size_t bytes, void *stream) {
	if (!bytes) return 0;
	return c ? c->memcpyAsync(to, from, bytes, fromDescribed, stream) : (memcpy(to, from, bytes), 0);
}
static int cudaPin(const cuda *c, size_t bytes, void **memory) {
	return c ? c->hostAlloc(memory, bytes, 0) : !(*memory = malloc(bytes));
}
static void cudaAbandon(const cuda *c, void *stream) {
	void *graph = NULL;
	if (c && !c->streamEndCapture(stream, &graph) && graph) c->graphDestroy(graph);
}
static int cudaMemory(const cuda *c, size_t *free, size_t *total) { return c->memGetInfo(free, total); }
static const char *cudaText(const cuda *c, int error) { return c ? c->getErrorString(error) : "out of memory"; }
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
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
func (a *api) newUploader(settings Options) (*uploader, error) {
	settings.MemoryLimit, settings.Profile, settings.Placement = 0, "", false
	settings.capture, settings.stream = false, nil // each run copies from another place
	options, err := settings.native("")
	if err != nil {
		return nil, err
	}
	defer options.Destroy()

	uploader := &uploader{}
	if uploader.executable, err = a.compileProbe(options); err != nil {
		return nil, err
	}

	name := C.CString(map[string]string{CPU: "Cpu", CUDA: "Cuda"}[settings.Provider])
	defer C.free(unsafe.Pointer(name))
	if err := a.failed(C.deviceMemory(a.table, name, C.int(settings.Device), &uploader.memory)); err != nil {
		uploader.close()
		return nil, err
	}

	return uploader, nil
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

// pick returns the replica of the device with the fewest runs in flight (the first one of several). The caller calls
// done after the run.
func (s *Session) pick() (picked *replica, done func()) {
	if len(s.replicas) == 1 {
		return s.replicas[0], func() {}
	}

	openDevices.Lock()
	defer openDevices.Unlock()
	picked = slices.MinFunc(s.replicas, func(a, b *replica) int { return a.threads.runs - b.threads.runs })
	picked.threads.runs++
	return picked, func() {
		openDevices.Lock()
		defer openDevices.Unlock()
		picked.threads.runs--
	}
}

// cudaRuntime is CUDA's runtime library, which ONNX Runtime's provider loads too. Functions of nil are those of the
// CPU, which stands in for a device.
type cudaRuntime struct{ functions C.cuda }

// table returns the functions, NULL for the CPU.
func (c *cudaRuntime) table() *C.cuda {
	if c == nil {
		return nil
	}
	return &c.functions
}

// onCPU stands in for CUDA's runtime library on the CPU. Only tests change it.
var onCPU *cudaRuntime

// loadCUDA loads the library once.
var loadCUDA = sync.OnceValues(func() (*cudaRuntime, error) {
	return loadRuntime(map[string]string{"windows": "cudart64_13.dll", "linux": "libcudart.so.13"}[runtime.GOOS])
})

func loadRuntime(library string) (*cudaRuntime, error) {
	cuda := &cudaRuntime{}
	for _, entry := range []struct {
		symbol string
		to     unsafe.Pointer
	}{
		{"cudaSetDevice", unsafe.Pointer(&cuda.functions.setDevice)},
		{"cudaStreamCreateWithFlags", unsafe.Pointer(&cuda.functions.streamCreate)},
		{"cudaStreamDestroy", unsafe.Pointer(&cuda.functions.streamDestroy)},
		{"cudaMemcpyAsync", unsafe.Pointer(&cuda.functions.memcpyAsync)},
		{"cudaStreamSynchronize", unsafe.Pointer(&cuda.functions.streamSynchronize)},
		{"cudaStreamEndCapture", unsafe.Pointer(&cuda.functions.streamEndCapture)},
		{"cudaGraphDestroy", unsafe.Pointer(&cuda.functions.graphDestroy)},
		{"cudaMemGetInfo", unsafe.Pointer(&cuda.functions.memGetInfo)},
		{"cudaHostAlloc", unsafe.Pointer(&cuda.functions.hostAlloc)},
		{"cudaFreeHost", unsafe.Pointer(&cuda.functions.freeHost)},
		{"cudaGetErrorString", unsafe.Pointer(&cuda.functions.getErrorString)},
	} {
		p, err := symbol(library, entry.symbol)
		if err != nil {
			return nil, fmt.Errorf("CUDA's runtime library %s: %w", library, err)
		}
		*(*unsafe.Pointer)(entry.to) = p
	}
	return cuda, nil
}

func (c *cudaRuntime) failed(code C.int, what string) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: CUDA error %d: %s", what, code, C.GoString(C.cudaText(c.table(), code)))
}

// use makes a device that of the calling thread.
func (c *cudaRuntime) use(device int) error {
	return c.failed(C.cudaDevice(c.table(), C.int(device)), "choosing the device")
}

// stream returns a stream of the calling thread's device that does not wait for other streams.
func (c *cudaRuntime) stream() (s unsafe.Pointer, err error) {
	return s, c.failed(C.cudaStream(c.table(), &s), "creating a stream")
}

// copy copies bytes between any memories, in the order of the stream.
func (c *cudaRuntime) copy(to, from unsafe.Pointer, bytes int, stream unsafe.Pointer) error {
	return c.failed(C.cudaCopy(c.table(), to, from, C.size_t(bytes), stream), "copying")
}

// wait waits until everything in a stream is done.
func (c *cudaRuntime) wait(stream unsafe.Pointer) error {
	return c.failed(C.cudaWait(c.table(), stream), "waiting")
}

// abandon ends a capture that failed. Until then, no other thread may wait for the device.
func (c *cudaRuntime) abandon(stream unsafe.Pointer) { C.cudaAbandon(c.table(), stream) }

func (c *cudaRuntime) destroy(stream unsafe.Pointer) error {
	return c.failed(C.cudaDestroy(c.table(), stream), "destroying a stream")
}

// pin returns memory of the host that the device reads by itself, which unpin frees.
func (c *cudaRuntime) pin(bytes int) (memory unsafe.Pointer, err error) {
	return memory, c.failed(C.cudaPin(c.table(), C.size_t(bytes), &memory), "pinning memory of the host")
}

func (c *cudaRuntime) unpin(memory unsafe.Pointer) error {
	return c.failed(C.cudaUnpin(c.table(), memory), "freeing pinned memory")
}

// free returns the free bytes of the calling thread's device, 0 if it does not say.
func (c *cudaRuntime) free() int64 {
	var free, total C.size_t
	if C.cudaMemory(c.table(), &free, &total) != 0 {
		return 0
	}
	return int64(free)
}

// FreeMemory returns the free bytes of the device that the session runs on, the fewest of several, or a negative number
// if they are unknown, as on the CPU.
func (s *Session) FreeMemory() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.provider != CUDA || s.replicas == nil {
		return -1
	}

	c, err := loadCUDA()
	if err != nil {
		return -1
	}

	least := int64(math.MaxInt64)
	for _, r := range s.replicas {
		err = errors.Join(err, r.threads.do(context.Background(), func() error {
			err := c.use(r.device)
			least = min(least, c.free())
			return err
		}))
	}

	if err != nil {
		return 0
	}

	return least
}
