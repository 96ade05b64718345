//go:build !windows

package ort

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "handlers.h"

// find returns a symbol of a library, or a copy of the reason against it, which the loader keeps by thread.
static void *find(const char *library, const char *name, char **error) {
	void *loaded = dlopen(library, RTLD_LAZY), *found = loaded ? dlsym(loaded, name) : NULL;
	const char *text = found ? NULL : dlerror();
	*error = text ? strdup(text) : NULL;
	return found;
}
*/
import "C"

import (
	"errors"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loaderKnows reports whether the system's loader can load name. The library stays loaded, because it is used next.
func loaderKnows(name string) bool {
	library := C.CString(name)
	defer C.free(unsafe.Pointer(library))
	return C.dlopen(library, C.RTLD_LAZY) != nil
}

func symbol(library, name string) (unsafe.Pointer, error) {
	from, wanted, reason := C.CString(library), C.CString(name), (*C.char)(nil)
	defer C.free(unsafe.Pointer(from))
	defer C.free(unsafe.Pointer(wanted))
	found := C.find(from, wanted, &reason)
	defer C.free(unsafe.Pointer(reason))
	if found == nil {
		return nil, errors.New(C.GoString(reason))
	}
	return found, nil
}

// saveHandlers notes the handlers of signals before the first library loads. They are Go's own: Go installs them for
// nearly all signals when a program starts, and os/signal depends on them.
var saveHandlers = sync.OnceFunc(func() { C.save() })

// repairHandlers restores the saved handlers of signals that a library replaced, so that os/signal and Go's panics
// work. The library then no longer handles these signals. Other handlers of libraries stay and get SA_ONSTACK, because
// the stack of a goroutine has no room for them (os/signal, "Go programs that use cgo or SWIG").
func repairHandlers() { C.repair() }

// forget lets the system drop the pages of a mapped file; a later access reads them again. The system may ignore this.
func forget(data []byte) { _ = unix.Madvise(data, unix.MADV_DONTNEED) }

// threadTime returns the processor time of this thread, 0 if the system does not report it.
func threadTime() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// ProcessorTime returns the processor time of this process, 0 if the system does not report it.
func ProcessorTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
