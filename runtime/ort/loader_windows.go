package ort

import (
	"os"
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

func mapFile(path string) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	m, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, nil, err
	}
	defer windows.CloseHandle(m) // the view keeps it
	p, err := windows.MapViewOfFile(m, windows.FILE_MAP_READ, 0, 0, 0)
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), info.Size()), info, nil
}

func unmapFile(data []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
}

// forget does nothing on Windows.
func forget([]byte) {}

// processorTime returns 0: it is not measured on Windows.
func processorTime() (thread, process time.Duration) { return 0, 0 }
