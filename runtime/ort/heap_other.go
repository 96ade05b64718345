//go:build !linux

package ort

// returnHeap does nothing: on this system the C library is not known to keep freed memory.
func returnHeap() {}
