package ort

/*
#include <features.h>
#ifdef __GLIBC__
#include <malloc.h>
static void trim(void) { malloc_trim(0); }
#else
static void trim(void) {}
#endif
*/
import "C"

// returnHeap returns freed memory of the C heap to the system. Otherwise the GNU C library keeps it per thread, and
// goroutines change threads: sessions of 32 MiB, opened and closed one after another, held 600 MiB.
func returnHeap() { C.trim() }
