package ort_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// 16 goroutines share a session with batches of 1 to 8 rows; row r of y = x W for x = (a, b) is (a+4b, 2a+5b, 3a+6b).
func TestConcurrentRuns(t *testing.T) {
	s := open(t, linear(t), ort.Options{})
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 100 {
				n := 1 + (g+i)%8
				x := tensor.New(n, 2)
				for k := range x.Data {
					x.Data[k] = float32(g*1000 + i*10 + k)
				}
				out, err := s.Run(t.Context(), tensor.Map{"x": x})
				if err != nil {
					t.Error(err)
					return
				}
				for r := range n {
					a, b, y := x.Data[2*r], x.Data[2*r+1], out["y"].Row(r).Data
					if y[0] != a+4*b || y[1] != 2*a+5*b || y[2] != 3*a+6*b {
						t.Errorf("goroutine %d, run %d, row %d: %v", g, i, r, y)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// During Close, every run either returns its result or the error that the session is closed.
func TestCloseDuringRuns(t *testing.T) {
	s := open(t, linear(t), ort.Options{})
	var all sync.WaitGroup
	var ran atomic.Int64
	begun := make(chan struct{}, 8)
	for range 8 {
		all.Go(func() {
			for i := 0; ; i++ {
				_, err := s.Run(t.Context(), tensor.Map{"x": tensor.New(4, 2)})
				if i == 0 {
					begun <- struct{}{}
				}
				if err != nil {
					if !errors.Is(err, ort.ErrClosed) {
						t.Error(err)
					}
					return
				}
				ran.Add(1)
			}
		})
	}
	for range 8 {
		<-begun
	}
	goldentest.NoError(t, s.Close())
	all.Wait()
	if ran.Load() < 8 {
		t.Errorf("only %d runs before Close", ran.Load())
	}
}
