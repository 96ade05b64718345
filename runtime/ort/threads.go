package ort

import (
	"context"
	"math"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"
)

// threads are the threads on which the sessions of one device are created, run and closed: as many as had work at the
// same time, at most mostThreads and GOMAXPROCS. Goroutines change threads, and ONNX Runtime's CUDA provider keeps
// memory for each thread that ran a session (its issues 8378, 11156). All methods of nil, for the CPU, stay on the
// caller's thread.
type threads struct {
	device, users int
	runs          int           // in flight, of all sessions with several devices
	calls         chan struct{} // one element for each call in progress

	mu   sync.Mutex
	idle []chan func() // a channel for each thread without work; the last one had work last
}

// capturing is held whole while a device captures a graph, and in part by every call and everything else that may
// allocate or free memory of a device: CUDA refuses that to all threads of the process, on all devices, and then the
// capture fails too (errors 900 and 901).
var capturing = semaphore.NewWeighted(math.MaxInt64)

// mostThreads is the number of threads of a device on which short runs and new sessions took the least time: 22 methods
// of the conformance suite took 23, 15, 12 and 16 s with 1, 2, 4 and 16 threads (H200).
const mostThreads = 4

// openDevices holds the threads of devices with open sessions.
var openDevices = struct {
	sync.Mutex
	of map[int]*threads
}{of: map[int]*threads{}}

// openThreads returns the threads of the options' device for one more session, which closes them once.
func openThreads(o Options) *threads {
	if !o.onDevice() {
		return nil
	}

	openDevices.Lock()
	defer openDevices.Unlock()
	t := openDevices.of[o.Device]
	if t == nil {
		t = &threads{device: o.Device, calls: make(chan struct{}, min(mostThreads, runtime.GOMAXPROCS(0)))}
		openDevices.of[o.Device] = t
	}

	t.users++
	return t
}

// close ends the use of the threads by a session. The threads end with the last session of the device.
func (t *threads) close() {
	if t == nil {
		return
	}

	openDevices.Lock()
	defer openDevices.Unlock()
	if t.users--; t.users > 0 {
		return
	}

	delete(openDevices.of, t.device)
	t.end()
}

// end ends the threads, of which none has work.
func (t *threads) end() {
	for _, thread := range t.idle {
		close(thread)
	}
}

// enter waits until fewer calls than threads and no capture are in progress, and counts one more. The caller calls
// leave once.
func (t *threads) enter(ctx context.Context) error {
	select {
	case t.calls <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}

	err := capturing.Acquire(ctx, 1)
	if err != nil {
		<-t.calls
	}

	return err
}

func (t *threads) leave() {
	capturing.Release(1)
	<-t.calls
}

// alone calls task while no call is in progress on any device.
func alone(task func() error) error {
	_ = capturing.Acquire(context.Background(), math.MaxInt64)
	defer capturing.Release(math.MaxInt64)
	return task()
}

// do calls task on one of the threads, which task must not ask for another one. It waits for a thread until ctx
// ends.
func (t *threads) do(ctx context.Context, task func() error) (err error) {
	if t == nil {
		return task()
	}

	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()

	return t.call(task)
}

// call calls task on an idle thread, or on a new one. A panic of task continues in the caller.
func (t *threads) call(task func() error) (err error) {
	thread := t.take()
	defer t.put(thread)
	var panicked any
	done := make(chan struct{})
	thread <- func() {
		defer close(done)
		defer func() { panicked = recover() }()
		defer repairHandlers() // libraries of CUDA load as late as in a run
		err = task()
	}
	if <-done; panicked != nil {
		panic(panicked)
	}

	return err
}

// take returns the idle thread that had work last, or a new one.
func (t *threads) take() chan func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.idle); n > 0 {
		thread := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return thread
	}

	thread := make(chan func())
	go func() {
		runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
		for f := range thread {
			f()
		}
	}()
	return thread
}

func (t *threads) put(thread chan func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, thread)
}
