package ort_test

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sync/errgroup"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
)

// The first sessions of a process may be created at the same time, although ONNX Runtime enters the domain of
// runtime/kernels into a table without a lock when the first session with it is created. Each try needs its own
// process.
func TestFirstSessionsAtOnce(t *testing.T) {
	const variable = "PROMPTFED_TEST_FIRST"
	if os.Getenv(variable) == "" {
		for range 6 {
			c := exec.Command(os.Args[0], "-test.run=^TestFirstSessionsAtOnce$")
			c.Env = append(os.Environ(), variable+"=1")
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		return
	}
	m := new(builder).in("x", onnx.TensorProto_FLOAT, dims{2}).node("Identity", []string{"x"}, "y").
		out("y", onnx.TensorProto_FLOAT, dims{2}).model(t)
	var eg errgroup.Group
	for range 32 {
		eg.Go(func() error {
			s, err := ort.NewSession(m, ort.Options{})
			if err == nil {
				err = s.Close()
			}
			return err
		})
	}
	goldentest.NoError(t, eg.Wait())
}
