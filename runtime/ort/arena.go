package ort

/*
#ifdef __linux__
#include <features.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
static void trim(void) { malloc_trim(0); }
#else
static void trim(void) {} // not known to keep freed memory
#endif
*/
import "C"

import (
	"context"
	"sync"

	"promptfed/runtime/tensor"
)

// trimmer returns a session of one node, whose runs trim the arena.
var trimmer func() (*Session, error)

func init() { // a session that closes trims, so an initializer of trimmer would depend on itself
	trimmer = sync.OnceValues(func() (*Session, error) { return NewSession(probeModel(), Options{Provider: CPU}) })
}

// TrimMemory returns memory that no run uses to the system: buffers that the arena of all sessions keeps for later
// runs, and freed memory of the C heap. Runs in flight keep their buffers; later runs allocate again.
//
// The GNU C library keeps freed memory per thread, and goroutines change threads: sessions of 32 MiB, opened and closed
// one after another, held 600 MiB.
func TrimMemory() error {
	s, err := trimmer()
	if err != nil {
		return err
	}
	c := call{trim: true}
	defer c.release()
	err = s.compute(context.Background(), &c, tensor.Map{"x": tensor.New(1)}, nil)
	C.trim()
	return err
}
