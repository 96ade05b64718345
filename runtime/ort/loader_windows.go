package ort

import "syscall"

// loaderKnows tells whether the system's loader can load name. The library stays loaded: it is about to be used.
func loaderKnows(name string) bool {
	_, err := syscall.LoadLibrary(name)
	return err == nil
}
