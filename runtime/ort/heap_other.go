//go:build !linux

package ort

// returnHeap gives freed memory of the C heap back to the system where the C library is known to keep it.
func returnHeap() {}
