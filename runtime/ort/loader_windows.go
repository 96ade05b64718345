package ort

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

func loaderKnows(name string) bool {
	_, err := windows.LoadLibrary(name)
	return err == nil
}

func symbol(library, name string) (unsafe.Pointer, error) {
	l, err := windows.LoadLibrary(library)
	if err != nil {
		return nil, err
	}
	p, err := windows.GetProcAddress(l, name)
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)), err
}

// Windows has no handlers of signals.
func saveHandlers()   {}
func repairHandlers() {}

// forget does nothing on Windows.
func forget([]byte) {}

// threadTime returns 0: processor time is not measured on Windows.
func threadTime() time.Duration { return 0 }

// ProcessorTime returns 0, by which callers know that the system does not report it.
func ProcessorTime() time.Duration { return 0 }
