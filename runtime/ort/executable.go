package ort

/*
#include <string.h>
#include "native.h"

static void *compile(table t, void *env, void *model, size_t bytes, void *options, void *container, void **out) {
	return ((void *(*)(void *, void *, size_t, void *, void *, void **))
		t[CreateSessionFromArrayWithPrepackedWeightsContainer])(env, model, bytes, options, container, out);
}

// run runs a session on the host. Outputs go to the values in out, or to new ones where out is NULL.
static void *run(table t, void *session, void *options, size_t inputs, char *const *in, void *const *given,
	size_t outputs, char *const *names, void **out) {
	return ((void *(*)(void *, void *, char *const *, void *const *, size_t, char *const *, size_t, void **))
		t[Run])(session, options, in, given, inputs, names, outputs, out);
}

// runBound is run with bound values, which may be on a device. New values of outputs are in the memory of each.
static void *runBound(table t, void *session, void *options, size_t inputs, char *const *in, void *const *given,
	size_t outputs, char *const *names, void **out, void *const *memory) {
	void *bound = NULL, *host = NULL, **values = NULL;
	size_t count = 0;
	void *status = ((void *(*)(void *, void **))t[CreateIoBinding])(session, &bound);
	for (size_t i = 0; !status && i < inputs; i++)
		status = ((void *(*)(void *, const char *, void *))t[BindInput])(bound, in[i], given[i]);
	for (size_t i = 0; !status && i < outputs; i++)
		status = out[i] ? ((void *(*)(void *, const char *, void *))t[BindOutput])(bound, names[i], out[i])
			: ((void *(*)(void *, const char *, void *))t[BindOutputToDevice])(bound, names[i], memory[i]);
	if (!status) status = ((void *(*)(void *))t[SynchronizeBoundInputs])(bound);
	if (!status) status = ((void *(*)(void *, void *, void *))t[RunWithBinding])(session, options, bound);
	if (!status) status = ((void *(*)(void *))t[SynchronizeBoundOutputs])(bound);
	if (!status) status = ((void *(*)(void **))t[GetAllocatorWithDefaultOptions])(&host);
	if (!status)
		status = ((void *(*)(void *, void *, void ***, size_t *))t[GetBoundOutputValues])(bound, host, &values, &count);
	for (size_t i = 0; i < count; i++) {
		if (out[i]) ((void (*)(void *))t[ReleaseValue])(values[i]); // another handle to the value
		else out[i] = values[i];
	}
	if (values) {
		void *other = ((void *(*)(void *, void *))t[AllocatorFree])(host, values);
		if (!status) status = other;
	}
	if (bound) ((void (*)(void *))t[ReleaseIoBinding])(bound);
	return status;
}
*/
import "C"

import (
	"unsafe"

	binding "github.com/yalue/onnxruntime_go"
)

// executable is a session of ONNX Runtime with the names of its inputs and outputs.
type executable struct {
	api             *api
	session         unsafe.Pointer
	inputs, outputs cStrings
}

// compile compiles a graph. Sessions with the same container share packed weights; nil is no container.
func (a *api) compile(model []byte, o *binding.SessionOptions, container unsafe.Pointer, inputs,
	outputs []string) (*executable, error) {
	e := &executable{api: a}
	if err := a.failed(C.compile(a.table, a.environment, unsafe.Pointer(&model[0]), C.size_t(len(model)), handle(o),
		container, &e.session)); err != nil {
		return nil, err
	}
	e.inputs, e.outputs = newCStrings(inputs), newCStrings(outputs)
	return e, nil
}

// run computes the outputs from the inputs, in the session's order. Outputs go to the values in out, or to new ones
// where out is nil: in the memory of each output, or on the host if memory is nil.
func (e *executable) run(options *binding.RunOptions, inputs, out, memory []unsafe.Pointer) error {
	pointer := handle(options)
	n, m, in, to := C.size_t(len(inputs)), C.size_t(len(out)), unsafe.SliceData(inputs), unsafe.SliceData(out)
	if memory != nil {
		return e.api.failed(C.runBound(e.api.table, e.session, pointer, n, e.inputs.list, in, m, e.outputs.list, to,
			unsafe.SliceData(memory)))
	}

	return e.api.failed(C.run(e.api.table, e.session, pointer, n, e.inputs.list, in, m, e.outputs.list, to))
}

func (e *executable) close() {
	if e == nil {
		return
	}
	e.api.release(C.ReleaseSession, e.session)
	e.inputs.free()
	e.outputs.free()
}

// cStrings is a list of strings in C's memory.
type cStrings struct {
	list **C.char
	n    int
}

func newCStrings(text []string) cStrings {
	// The memory is zero: Go's collector reads the old value of a pointer that is written while it works.
	s := cStrings{(**C.char)(C.calloc(C.size_t(len(text)), C.size_t(unsafe.Sizeof(uintptr(0))))), len(text)}
	for i, t := range text {
		unsafe.Slice(s.list, s.n)[i] = C.CString(t)
	}
	return s
}

func (s cStrings) free() {
	for _, text := range unsafe.Slice(s.list, s.n) {
		C.free(unsafe.Pointer(text))
	}
	C.free(unsafe.Pointer(s.list))
}
