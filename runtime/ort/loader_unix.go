//go:build !windows

package ort

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
*/
import "C"

import "unsafe"

// loaderKnows tells whether the system's loader can load name. The library stays loaded: it is about to be used.
func loaderKnows(name string) bool {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.dlopen(c, C.RTLD_LAZY) != nil
}
