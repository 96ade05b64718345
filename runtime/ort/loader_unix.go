//go:build !windows

package ort

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loaderKnows reports whether the system's loader can load name. The library stays loaded, because it is used next.
func loaderKnows(name string) bool { return load(name) != nil }

func load(library string) unsafe.Pointer {
	c := C.CString(library)
	defer C.free(unsafe.Pointer(c))
	return C.dlopen(c, C.RTLD_LAZY)
}

func symbol(library, name string) (unsafe.Pointer, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if l := load(library); l != nil {
		if p := C.dlsym(l, c); p != nil {
			return p, nil
		}
	}
	return nil, errors.New(C.GoString(C.dlerror()))
}

// forget lets the system drop the pages of a mapped file; a later access reads them again. The system may ignore this.
func forget(data []byte) { _ = unix.Madvise(data, unix.MADV_DONTNEED) }

func processorTime() (thread, process time.Duration) {
	of := func(clock int32) time.Duration {
		var t unix.Timespec
		if unix.ClockGettime(clock, &t) != nil {
			return 0
		}
		return time.Duration(t.Nano())
	}
	return of(unix.CLOCK_THREAD_CPUTIME_ID), of(unix.CLOCK_PROCESS_CPUTIME_ID)
}
