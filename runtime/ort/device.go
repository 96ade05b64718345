package ort

/*
#include "native.h"

static void *deviceMemory(table t, const char *name, int device, void **out) { // 0: no own arena; default memory
	return ((void *(*)(const char *, int, int, int, void **))t[CreateMemoryInfo])(name, 0, device, 0, out);
}

// The functions of CUDA's runtime library that copies to and from fixed device memory need. They return 0 or an error.
typedef struct {
	int (*setDevice)(int device);
	int (*createStream)(void **stream, unsigned flags);
	int (*destroyStream)(void *stream);
	int (*copy)(void *to, const void *from, size_t bytes, int kind, void *stream);
	int (*wait)(void *stream);
	int (*endCapture)(void *stream, void **graph);
	int (*destroyGraph)(void *graph);
	int (*memory)(size_t *free, size_t *total);
	int (*pin)(void **memory, size_t bytes, unsigned flags);
	int (*unpin)(void *memory);
	const char *(*text)(int error);
} cuda;

enum { fromDescribed = 4, ownOrder = 1 }; // cudaMemcpyDefault, cudaStreamNonBlocking

static int cudaStream(const cuda *c, int device, void **stream) {
	int error = c->setDevice(device);
	return error ? error : c->createStream(stream, ownOrder);
}

static int cudaCopy(const cuda *c, void *to, const void *from, size_t bytes, void *stream) {
	return c->copy(to, from, bytes, fromDescribed, stream);
}

static int cudaDevice(const cuda *c, int device) { return c->setDevice(device); }
static int cudaWait(const cuda *c, void *stream) { return c->wait(stream); }
static int cudaDestroy(const cuda *c, void *stream) { return c->destroyStream(stream); }
static void cudaAbandon(const cuda *c, void *stream) {
	void *graph = NULL;
	if (!c->endCapture(stream, &graph) && graph) c->destroyGraph(graph);
}
static int cudaPin(const cuda *c, size_t bytes, void **memory) { return c->pin(memory, bytes, 0); }
static int cudaUnpin(const cuda *c, void *memory) { return c->unpin(memory); }
static int cudaMemory(const cuda *c, size_t *free, size_t *total) { return c->memory(free, total); }
static const char *cudaText(const cuda *c, int error) { return c->text(error); }
*/
import "C"

import (
	"context"
	"fmt"
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

// busy counts the runs in flight on each device, of all sessions with several devices.
var busy = struct {
	sync.Mutex
	runs map[int]int
}{runs: map[int]int{}}

// pick returns the replica of the device with the fewest runs in flight (the first one of several). The caller calls
// done after the run.
func (s *Session) pick() (picked *replica, done func()) {
	if len(s.replicas) == 1 {
		return s.replicas[0], func() {}
	}

	busy.Lock()
	defer busy.Unlock()
	picked = slices.MinFunc(s.replicas, func(a, b *replica) int { return busy.runs[a.device] - busy.runs[b.device] })
	busy.runs[picked.device]++
	return picked, func() {
		busy.Lock()
		defer busy.Unlock()
		busy.runs[picked.device]--
	}
}

// cudaRuntime is CUDA's runtime library, which ONNX Runtime's provider loads too.
type cudaRuntime struct{ functions C.cuda }

// loadCUDA loads the functions once.
var loadCUDA = sync.OnceValues(func() (*cudaRuntime, error) {
	name := map[string]string{"windows": "cudart64_13.dll", "linux": "libcudart.so.13"}[runtime.GOOS]
	cuda := &cudaRuntime{}
	for _, entry := range []struct {
		symbol string
		to     unsafe.Pointer
	}{
		{"cudaSetDevice", unsafe.Pointer(&cuda.functions.setDevice)},
		{"cudaStreamCreateWithFlags", unsafe.Pointer(&cuda.functions.createStream)},
		{"cudaStreamDestroy", unsafe.Pointer(&cuda.functions.destroyStream)},
		{"cudaMemcpyAsync", unsafe.Pointer(&cuda.functions.copy)},
		{"cudaStreamSynchronize", unsafe.Pointer(&cuda.functions.wait)},
		{"cudaStreamEndCapture", unsafe.Pointer(&cuda.functions.endCapture)},
		{"cudaGraphDestroy", unsafe.Pointer(&cuda.functions.destroyGraph)},
		{"cudaMemGetInfo", unsafe.Pointer(&cuda.functions.memory)},
		{"cudaHostAlloc", unsafe.Pointer(&cuda.functions.pin)},
		{"cudaFreeHost", unsafe.Pointer(&cuda.functions.unpin)},
		{"cudaGetErrorString", unsafe.Pointer(&cuda.functions.text)},
	} {
		p, err := symbol(name, entry.symbol)
		if err != nil {
			return nil, fmt.Errorf("CUDA's runtime library %s: %w", name, err)
		}
		*(*unsafe.Pointer)(entry.to) = p
	}
	return cuda, nil
})

func (c *cudaRuntime) failed(code C.int, what string) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: CUDA error %d: %s", what, code, C.GoString(C.cudaText(&c.functions, code)))
}

// stream returns a stream of a device that does not wait for other streams.
func (c *cudaRuntime) stream(device int) (s unsafe.Pointer, err error) {
	return s, c.failed(C.cudaStream(&c.functions, C.int(device), &s), "creating a stream")
}

// use makes a device that of the calling thread.
func (c *cudaRuntime) use(device int) error {
	return c.failed(C.cudaDevice(&c.functions, C.int(device)), "choosing the device")
}

// copy copies bytes between any memories, in the order of the stream.
func (c *cudaRuntime) copy(to, from unsafe.Pointer, bytes int, stream unsafe.Pointer) error {
	return c.failed(C.cudaCopy(&c.functions, to, from, C.size_t(bytes), stream), "copying")
}

// wait waits until everything in a stream is done.
func (c *cudaRuntime) wait(stream unsafe.Pointer) error {
	return c.failed(C.cudaWait(&c.functions, stream), "waiting")
}

// abandon ends a capture that failed. Until then, no other thread may wait for the device.
func (c *cudaRuntime) abandon(stream unsafe.Pointer) { C.cudaAbandon(&c.functions, stream) }

func (c *cudaRuntime) destroy(stream unsafe.Pointer) error {
	return c.failed(C.cudaDestroy(&c.functions, stream), "destroying a stream")
}

// pin returns memory of the host that the device reads by itself, which unpin frees.
func (c *cudaRuntime) pin(bytes int) (memory unsafe.Pointer, err error) {
	return memory, c.failed(C.cudaPin(&c.functions, C.size_t(bytes), &memory), "pinning memory of the host")
}

func (c *cudaRuntime) unpin(memory unsafe.Pointer) error {
	return c.failed(C.cudaUnpin(&c.functions, memory), "freeing pinned memory")
}

// FreeMemory returns the free bytes of the device that the session runs on, the fewest of several, or a negative number
// if they are unknown, as on the CPU.
func (s *Session) FreeMemory() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.provider != CUDA {
		return -1
	}

	c, err := loadCUDA()
	if err != nil {
		return -1
	}

	least := int64(-1)
	for i, r := range s.replicas {
		_ = r.threads.do(context.Background(), func() error {
			var free, total C.size_t
			if c.use(r.device) != nil || C.cudaMemory(&c.functions, &free, &total) != 0 {
				free = 0
			}
			if i == 0 || int64(free) < least {
				least = int64(free)
			}
			return nil
		})
	}

	return least
}
