package ort

import (
	"context"
	"maps"
)

// Threads opens the threads of a device, as a session on it does.
func Threads(device int) (do func(context.Context, func() error) error, end func()) {
	t := openThreads(Options{Bind: true, Device: device})
	return t.do, t.close
}

// Load loads a shared library, as code that nothing guards does.
func Load(library string) bool { return loaderKnows(library) }

func (o Options) Spins() bool { return o.spins() }

func Uploaded() int { return count(func(c *container) int { return len(c.values) }) }

// Packed counts the matrices that are packed for the operator Product.
func Packed() int { return count(func(c *container) int { return len(c.memory) }) }

func count(build func(*container) int) (n int) {
	containers.Lock()
	defer containers.Unlock()
	for _, c := range containers.of {
		n += build(c)
	}
	return n
}

func (v *Value) Copies() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.at)
}

// Pick starts runs that end together, and returns their devices.
func (s *Session) Pick(runs int) (devices []int) {
	for range runs {
		r, done := s.pick()
		defer done()
		devices = append(devices, r.device)
	}
	return devices
}

// BoundIdle sets how many small graphs of closed cached sessions stay compiled, until undo is called.
func BoundIdle(graphs int) (undo func()) {
	graphCache.Lock()
	defer graphCache.Unlock()
	was := maxIdleBytes
	maxIdleBytes = graphs * graphBytes
	return func() {
		graphCache.Lock()
		defer graphCache.Unlock()
		maxIdleBytes = was
	}
}

// CachedGraphs counts the graphs of cached sessions, and those without an open session.
func CachedGraphs() (all, idle int) {
	graphCache.Lock()
	defer graphCache.Unlock()
	return len(graphCache.graphs), graphCache.idle.Len()
}

// DropIdle closes the graphs without an open session.
func DropIdle() error {
	graphCache.Lock()
	defer graphCache.Unlock()
	var all []*replica
	for graphCache.idle.Len() > 0 {
		all = append(all, dropLast()...)
	}
	return closeReplicas(all)
}

// SizesWithGraphs returns the number of sizes that have a graph of their own, and HasGraphFor whether some have.
func (s *Session) SizesWithGraphs() int { return s.fixed.full }

func (s *Session) HasGraphFor(key string) bool { return len(s.fixed.sizes[key].lanes) > 0 }

// EmulateDevice returns options of sessions on the CPU whose kernels a library starts in place of CUDA's driver.
func EmulateDevice(o Options, library string) (Options, error) {
	a, err := native()
	if err == nil {
		o.Provider = CPU
		o.kernels, err = a.loadKernels(library, "CPUExecutionProvider")
	}
	return o, err
}

var CompareKernels = compareKernels

// EmulateCUDA makes captured graphs of the CPU use a library in place of CUDA's runtime library until undo is called.
func EmulateCUDA(library string) (living func() int64, undo func(), err error) {
	onCPU, err = loadRuntime(library)
	return onCPU.free, func() { onCPU = nil }, err
}

var Alone = alone

// FreeCopies ends a value as the garbage collector does.
func FreeCopies(v *Value) {
	at := maps.Clone(v.at)
	clear(v.at)
	freeCopies(at)
}
