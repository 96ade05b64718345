package ort_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// alive reports whether a thread of this process exists.
func alive(id int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", id))
	return err == nil
}

// Calls that follow each other share a thread, calls at the same time have at most GOMAXPROCS, and threads end with the
// last session.
func TestThreadsAreFew(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	do, end := ort.Threads(7)
	_, endOther := ort.Threads(7)
	var mu sync.Mutex
	ids := map[int]int{}
	note := func() error {
		mu.Lock()
		defer mu.Unlock()
		ids[unix.Gettid()]++
		return nil
	}
	for i, parallel := range []bool{false, true} {
		var all sync.WaitGroup
		var wait sync.WaitGroup // until three calls are in progress
		wait.Add(3)
		for k := range 60 {
			call := func() {
				if err := do(t.Context(), func() error {
					if parallel && k < 3 {
						wait.Done()
						wait.Wait()
					}
					return note()
				}); err != nil {
					t.Error(err)
				}
			}
			if all.Go(call); !parallel {
				all.Wait()
			}
		}
		all.Wait()
		if n := len(ids); n != 1+2*i {
			t.Errorf("%d threads, in parallel %v", n, parallel)
		}
	}
	end()
	for id := range ids {
		if !alive(id) {
			t.Errorf("thread %d ended before the last session", id)
		}
	}
	endOther()
	delete(ids, os.Getpid()) // the first thread of a program cannot end before the program does
	for id := range ids {
		busytest.Until(t, fmt.Sprint("the end of thread ", id), func() bool { return !alive(id) })
	}
}

// A call that waits for a thread ends with its context. Errors and panics reach the caller, and the thread remains.
func TestThreadsReturn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	do, end := ort.Threads(7)
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	if err := do(t.Context(), func() error {
		go func() {
			busytest.Delay(time.Millisecond)
			cancel()
		}()
		if err := do(ctx, func() error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("a second call on one thread: %v", err)
		}
		return os.ErrInvalid
	}); err != os.ErrInvalid {
		t.Errorf("%v", err)
	}
	func() {
		defer func() {
			if p := recover(); p != "fault" {
				t.Errorf("panic %v", p)
			}
		}()
		do(t.Context(), func() error { panic("fault") })
	}()
	goldentest.NoError(t, do(t.Context(), func() error { return nil }))
}

func init() { probes["threads"] = probeThreads }

// used is what probeThreads prints.
type used struct {
	Runs, Inside int // runs in ONNX Runtime's profile, and their threads
	Before, Now  int // threads of the process after a first run, and after all
}

// probeThreads runs a session of the provider in PROMPTFED_TEST_PROVIDER from 64 goroutines at the same time.
func probeThreads() {
	const n = 384
	t := new(testing.T)
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	b := (&builder{}).in("x", f32, dims{n, n})
	from := "x"
	for i := range 4 {
		to := fmt.Sprint("y", i)
		b.node("MatMul", []string{from, from}, to)
		from = to
	}
	provider := os.Getenv("PROMPTFED_TEST_PROVIDER")
	o := ort.Options{Provider: provider, Bind: provider == "", Profile: filepath.Join(os.TempDir(), "profile")}
	s, err := ort.NewSession(b.out(from, f32, dims{n, n}).model(t), o)
	check(err)
	run := func() {
		_, err := s.Run(context.Background(), tensor.Map{"x": tensor.New(n, n)})
		check(err)
	}
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		check(err)
		return len(tasks)
	}
	run()
	out := used{Before: threads()}
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if provider == ort.CPU {
				runtime.LockOSThread() // so that runs that follow each other are on different threads, too
			}
			for range 4 {
				run()
			}
		})
	}
	all.Wait()
	out.Now = threads()
	check(s.Close())
	files, err := filepath.Glob(o.Profile + "*")
	check(err)
	ids := map[int]bool{}
	for _, file := range files { // a device has another graph for sizes that come again
		raw, err := os.ReadFile(file)
		check(err)
		var events []struct {
			Name string `json:"name"`
			ID   int    `json:"tid"`
		}
		check(json.Unmarshal(raw, &events))
		for _, e := range events {
			if e.Name == "model_run" {
				ids[e.ID] = true
				out.Runs++
			}
		}
	}
	out.Inside = len(ids)
	check(json.NewEncoder(os.Stdout).Encode(out))
}

// On a device, the runs of 64 goroutines enter ONNX Runtime on at most GOMAXPROCS threads, and the process has no more
// of its own. On the CPU each goroutine in ONNX Runtime holds a thread.
func TestSessionsRunOnFewThreads(t *testing.T) {
	usage := func(provider string) (u used) {
		p := exec.Command(os.Args[0])
		p.Env = append(os.Environ(), "PROMPTFED_TEST_ORT_PROBE=threads", "PROMPTFED_TEST_PROVIDER="+provider,
			"GOMAXPROCS=2", "TMPDIR="+t.TempDir())
		out, err := p.CombinedOutput()
		if err == nil {
			err = json.Unmarshal(out, &u)
		}
		if err != nil || u.Runs != 257 {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s: %+v", provider, u)
		return u
	}
	// Beside two threads for runs, Go may add some for its own work. A thread for each goroutine would add 64.
	if u := usage(""); u.Inside > 2 || u.Now > u.Before+32 {
		t.Errorf("a session on a device: %+v", u)
	}
	if u := usage(ort.CPU); u.Inside <= 2 {
		t.Errorf("a session on the CPU: %+v", u)
	}
}
