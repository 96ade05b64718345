package ort_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

func init() { probes["signals"] = probeSignals }

// probeSignals chooses a provider and runs a session, or only loads the library that PROMPTFED_TEST_UNGUARDED names.
// Then it prints which signals reach os/signal, and whether a fault in Go code is a panic of Go. The signals arrive
// while the thread uses the stack of a goroutine.
func probeSignals() {
	runtime.LockOSThread()
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, os.Interrupt, syscall.SIGUSR1, syscall.SIGTERM)
	_, version, err := ort.Library()
	chosen := ort.Options{}
	if library := os.Getenv("PROMPTFED_TEST_UNGUARDED"); library != "" {
		version = fmt.Sprint(ort.Load(library))
	} else if chosen, _, err = ort.ChooseProvider(ort.Options{Provider: ort.Auto}); err == nil {
		_, err = ort.RunOnce(context.Background(), linear(new(testing.T)), chosen, tensor.Map{"x": tensor.New(1, 2)})
	}
	fmt.Println(chosen.Provider, version, err)
	if signal.Ignored(syscall.SIGHUP) {
		unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGHUP)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGUSR1, syscall.SIGTERM} {
		unix.Tgkill(os.Getpid(), unix.Gettid(), s)
		fmt.Println(<-heard)
	}
	defer func() { fmt.Println(recover()) }()
	var nothing *tensor.Tensor
	fmt.Println(nothing.Shape)
}

// ONNX Runtime loads libonnxruntime_providers_shared.so first for CUDA. Here this library only replaces handlers of
// signals, as CUDA's libraries do (issue 140 of onnxruntime_go). If the test loads it, an interrupt ends the program in
// a panic. If a session loads it, or the real provider, the program hears all signals. SIGHUP, which the program is
// started to ignore, stays with the library.
func TestSignalsReachGo(t *testing.T) {
	library, version, err := ort.Library()
	goldentest.NoError(t, err)
	library, err = filepath.Abs(library)
	goldentest.NoError(t, err)
	dir := t.TempDir()
	beside := filepath.Join(dir, filepath.Base(library))
	symlink(t, library, beside)
	fake := filepath.Join(dir, "libonnxruntime_providers_shared.so")
	cc := exec.Command("cc", "-shared", "-fPIC", "-Wl,-z,nodelete", "-o", fake, "-x", "c", "-")
	cc.Stdin = bytes.NewReader(filetest.Read(t, "testdata/handlers.c"))
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	heard := " " + version + " <nil>\n%sinterrupt\nuser defined signal 1\nterminated\n" +
		"runtime error: invalid memory address or nil pointer dereference\n"
	for name, c := range map[string]struct{ program, variable, want string }{
		"unguarded": {"exec $0", "PROMPTFED_TEST_UNGUARDED=" + fake,
			"fatal error: non-Go code set up signal handler without SA_ONSTACK flag"},
		"guarded": {"trap '' HUP; exec $0", ort.LibraryVariable + "=" + beside,
			ort.CPU + fmt.Sprintf(heard, "library 1 1\n")},
		"provider": {"exec $0", "", ort.Options{}.WithProvider().Provider + fmt.Sprintf(heard, "")},
	} {
		t.Run(name, func(t *testing.T) {
			p := exec.Command("sh", "-c", c.program, os.Args[0])
			p.Env = append(os.Environ(), "PROMPTFED_TEST_ORT_PROBE=signals", c.variable)
			out, err := p.CombinedOutput()
			if !strings.Contains(string(out), c.want) || (err != nil) != (name == "unguarded") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
