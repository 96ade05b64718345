package ort

/*
#include "native.h"

typedef struct { table (*get)(uint32_t version); const char *(*release)(void); } base;

static table tableOf(void *getBase) { return ((const base *(*)(void))getBase)()->get(version); }

static const char *message(table t, void *status) {
	return ((const char *(*)(const void *))t[GetErrorMessage])(status);
}

static void release(table t, int kind, void *what) { ((void (*)(void *))t[kind])(what); }

static void *environment(table t, void **out) { // 4: log fatal errors only
	return ((void *(*)(int, const char *, void **))t[CreateEnv])(4, "promptfed", out);
}

static void *cpuMemory(table t, void **out) { // 0: no arena; default memory
	return ((void *(*)(int, int, void **))t[CreateCpuMemoryInfo])(0, 0, out);
}

static void *newContainer(table t, void **out) {
	return ((void *(*)(void **))t[CreatePrepackedWeightsContainer])(out);
}

static void *wrap(table t, void *memory, void *data, size_t bytes, const int64_t *shape, size_t rank, int type,
	void **value) {
	return ((void *(*)(void *, void *, size_t, const int64_t *, size_t, int, void **))
		t[CreateTensorWithDataAsOrtValue])(memory, data, bytes, shape, rank, type, value);
}

// view creates a float32 value of the given shape over the memory of another value, on any device.
static void *view(table t, void *owner, size_t bytes, const int64_t *shape, size_t rank, void **value) {
	void *memory = NULL, *data = NULL;
	void *status = ((void *(*)(void *, void **))t[GetTensorMemoryInfo])(owner, &memory);
	if (!status) status = ((void *(*)(void *, void **))t[GetTensorMutableData])(owner, &data);
	return status ? status : wrap(t, memory, data, bytes, shape, rank, 1, value);
}

static void *addInitializer(table t, void *options, const char *name, void *value) {
	return ((void *(*)(void *, const char *, void *))t[AddInitializer])(options, name, value);
}

static void *addDomain(table t, void *options, void *domain) {
	return ((void *(*)(void *, void *))t[AddCustomOpDomain])(options, domain);
}

static const char *buildInfo(table t) { return ((const char *(*)(void))t[GetBuildInfoString])(); }

#ifdef __GLIBC__
#include <gnu/libc-version.h>
static const char *libraryC(void) { return gnu_get_libc_version(); }
#else
static const char *libraryC(void) { return ""; }
#endif

// compilerC also says where only later versions of the program choose the code of operators by instruction set.
static const char *compilerC(void) {
#if defined(__x86_64__) && (defined(__clang__) || !defined(__GLIBC__))
	return __VERSION__ " by instruction set";
#else
	return __VERSION__;
#endif
}

static void *setProvider(table t, void *options, const char *key, void *value) {
	return ((void *(*)(void *, const char *, void *))t[UpdateCUDAProviderOptionsWithValue])(options, key, value);
}

#ifdef __GLIBC__
#include <malloc.h>
static void trim(void) { malloc_trim(0); }
#else
static void trim(void) {} // not known to keep freed memory
#endif

static void *addRunEntry(table t, void *options, const char *key, const char *value) {
	return ((void *(*)(void *, const char *, const char *))t[AddRunConfigEntry])(options, key, value);
}
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"

	"promptfed/runtime/kernels"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Types of elements, of ONNX Runtime's ONNXTensorElementDataType.
const (
	float32Elements = 1
	int64Elements   = 7
)

// api holds the C functions of ONNX Runtime that the binding does not offer. Pointers are ONNX Runtime's own objects.
type api struct {
	table                        C.table
	environment, memory, kernels unsafe.Pointer
	deviceKernels                func() (unsafe.Pointer, error) // the domain for CUDA, loaded once
}

// native loads the functions once, and creates the arena that sessions share.
var native = sync.OnceValues(func() (*api, error) {
	path, _, err := Library()
	if err != nil {
		return nil, err
	}
	base, err := symbol(path, "OrtGetApiBase")
	if err != nil {
		return nil, err
	}
	api := &api{table: C.tableOf(base)}
	if api.table == nil {
		return nil, fmt.Errorf("%s does not offer version %d of its functions", path, C.version)
	}
	if err := api.failed(C.environment(api.table, &api.environment)); err != nil {
		return nil, err
	}
	if err := shareArena(); err != nil {
		return nil, err
	}
	var status unsafe.Pointer
	if api.kernels, status = kernels.NewDomain(unsafe.Pointer(api.table)); status != nil {
		return nil, api.failed(status)
	}
	if err := api.failed(C.cpuMemory(api.table, &api.memory)); err != nil {
		return nil, err
	}
	api.deviceKernels = sync.OnceValues(func() (unsafe.Pointer, error) {
		library := map[string]string{"windows": "nvcuda.dll", "linux": "libcuda.so.1"}[runtime.GOOS]
		return api.loadKernels(library, "CUDAExecutionProvider")
	})
	return api, api.noteDomain()
})

// shareArena registers one arena for all sessions that ask for it. It grows by the missing size, not to a power of two.
func shareArena() error {
	memory, err := binding.GetMemoryInfo()
	if err != nil {
		return err
	}

	settings, err := binding.NewArenaCfgV2(map[string]int{"arena_extend_strategy": 1})
	if err != nil {
		return err
	}
	defer settings.Destroy()

	return binding.CreateAndRegisterAllocator(memory, settings)
}

// noteDomain creates and closes a session with the operators of runtime/kernels. The first such session in a process
// enters their domain into a table of ONNX Runtime that no lock guards: of two first sessions at the same time, ONNX
// Runtime would reject one.
func (a *api) noteDomain() error {
	o, err := binding.NewSessionOptions()
	if err != nil {
		return err
	}
	defer o.Destroy()

	if err := a.addKernels(o, a.kernels); err != nil {
		return err
	}

	s, err := a.compileProbe(o)
	s.close()
	return err
}

// compileProbe compiles the model of one node, for inputs of any shape.
func (a *api) compileProbe(options *binding.SessionOptions) (*executable, error) {
	m := probeModel()
	for _, v := range append(m.Graph.Input, m.Graph.Output...) {
		v.GetType().GetTensorType().Shape = nil
	}

	model, err := onnx.Marshal(m)
	if err != nil {
		return nil, err
	}

	return a.compile(model, options, nil, []string{"x"}, []string{"y"})
}

// addKernels lets a session use a domain of operators of runtime/kernels.
func (a *api) addKernels(o *binding.SessionOptions, domain unsafe.Pointer) error {
	return a.failed(C.addDomain(a.table, handle(o), domain))
}

// loadKernels creates the domain of operators for a CUDA device. They compute on an execution provider, and start their
// kernels through a driver library.
func (a *api) loadKernels(library, provider string) (domain unsafe.Pointer, err error) {
	var driver [4]unsafe.Pointer
	for i, name := range kernels.DriverFunctions() {
		if driver[i], err = symbol(library, name); err != nil {
			return nil, fmt.Errorf("CUDA's driver library %s: %w", library, err)
		}
	}

	domain, status, err := kernels.NewDeviceDomain(unsafe.Pointer(a.table), driver, provider)
	return domain, errors.Join(a.failed(status), err)
}

func (a *api) failed(status unsafe.Pointer) error {
	if status == nil {
		return nil
	}
	defer C.release(a.table, C.ReleaseStatus, status)
	return errors.New(C.GoString(C.message(a.table, status)))
}

func (a *api) newContainer() (c unsafe.Pointer, err error) {
	return c, a.failed(C.newContainer(a.table, &c))
}

func (a *api) release(kind C.int, what unsafe.Pointer) { C.release(a.table, kind, what) }

func (a *api) releaseContainer(c unsafe.Pointer) { a.release(C.ReleasePrepackedWeightsContainer, c) }

func (a *api) releaseValue(v unsafe.Pointer) { a.release(C.ReleaseValue, v) }

// wrap creates a value over the start of the host's memory at data, which must outlive the value.
func (a *api) wrap(data unsafe.Pointer, size int, shape []int64, kind int) (value unsafe.Pointer, err error) {
	return value, a.failed(C.wrap(a.table, a.memory, data, C.size_t(size), (*C.int64_t)(unsafe.SliceData(shape)),
		C.size_t(len(shape)), C.int(kind), &value))
}

// view creates a float32 value over the memory of another value, which must outlive it.
func (a *api) view(owner unsafe.Pointer, size int, shape []int64) (value unsafe.Pointer, err error) {
	return value, a.failed(C.view(a.table, owner, C.size_t(size), (*C.int64_t)(unsafe.SliceData(shape)),
		C.size_t(len(shape)), &value))
}

// addInitializer makes a session use value as an initializer. The value must be released after the session.
func (a *api) addInitializer(options unsafe.Pointer, name string, value unsafe.Pointer) error {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return a.failed(C.addInitializer(a.table, options, n, value))
}

func (a *api) buildInfo() string { return C.GoString(C.buildInfo(a.table)) }

// compilerC returns the version of the C compiler, and libraryC that of the GNU C library ("" with another C library).
func compilerC() string { return C.GoString(C.compilerC()) }
func libraryC() string  { return C.GoString(C.libraryC()) }

func (a *api) set(o *binding.RunOptions, key, value string) error {
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return a.failed(C.addRunEntry(a.table, handle(o), k, v))
}

// setStream makes a CUDA provider compute in a stream.
func (a *api) setStream(o *binding.CUDAProviderOptions, stream unsafe.Pointer) error {
	key := C.CString("user_compute_stream")
	defer C.free(unsafe.Pointer(key))
	return a.failed(C.setProvider(a.table, handle(o), key, stream))
}

// handle returns ONNX Runtime's object of options of the binding, which has no function for it; nil for nil.
func handle(options any) unsafe.Pointer {
	if v := reflect.ValueOf(options); !v.IsNil() {
		return v.Elem().FieldByName("o").UnsafePointer()
	}
	return nil
}

// trimmer returns a session of one node, whose runs trim the arena.
var trimmer func() (*Session, error)

func init() { // a session that closes trims, so an initializer of trimmer would depend on itself
	trimmer = sync.OnceValues(func() (*Session, error) { return NewSession(probeModel(), Options{Provider: CPU}) })
}

// TrimMemory returns memory that no run uses to the system: buffers that the arena of all sessions keeps for later
// runs, and freed memory of the C heap. Runs in flight keep their buffers; later runs allocate again.
//
// The GNU C library keeps freed memory per thread, and goroutines change threads: sessions of 32 MiB, opened and closed
// one after another, held 600 MiB.
func TrimMemory() error {
	s, err := trimmer()
	if err != nil {
		return err
	}

	c := call{trim: true}
	defer c.release()
	err = s.compute(context.Background(), &c, tensor.Map{"x": tensor.New(1)}, nil)
	C.trim()
	return err
}
