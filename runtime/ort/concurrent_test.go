package ort_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

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
				out, err := s.Run(t.Context(), tensor.Map{"x": x}, "y")
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
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if ran.Load() < 8 {
		t.Errorf("only %d runs before Close", ran.Load())
	}
}

func TestPool(t *testing.T) {
	var p ort.Pool
	var built atomic.Int64
	release := make(chan struct{})
	got := make([]*ort.Session, 16)
	var all sync.WaitGroup
	for g := range got {
		all.Go(func() {
			s, err := p.Get(fmt.Sprint("key", g%2), func() (*ort.Session, error) {
				built.Add(1)
				<-release
				return ort.NewSession(linear(t), ort.Options{})
			})
			if err != nil {
				t.Error(err)
			}
			got[g] = s
		})
	}
	close(release)
	all.Wait()
	if built.Load() != 2 || got[0] == got[1] {
		t.Errorf("%d sessions built for 2 keys", built.Load())
	}
	for g := range got {
		if got[g] != got[g%2] {
			t.Errorf("goroutine %d has another session", g)
		}
	}
	failure := errors.New("no such graph")
	if _, err := p.Get("bad", func() (*ort.Session, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("failed build gave %v", err)
	}
	if s, err := p.Get("bad", func() (*ort.Session, error) {
		return ort.NewSession(linear(t),
			ort.Options{})
	}); err != nil || s == nil {
		t.Errorf("build after a failure gave %v", err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := got[0].Run(t.Context(), tensor.Map{"x": tensor.New(1, 2)}); !errors.Is(err, ort.ErrClosed) {
		t.Errorf("session after the pool's close: %v", err)
	}
	if _, err := p.Get("key0", nil); !errors.Is(err, ort.ErrClosed) {
		t.Errorf("Get after Close: %v", err)
	}
}

// A build that ends after the pool was closed must not leave a session behind.
func TestPoolClosedDuringBuild(t *testing.T) {
	var p ort.Pool
	var s *ort.Session
	_, err := p.Get("late", func() (*ort.Session, error) {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		s = open(t, linear(t), ort.Options{})
		return s, nil
	})
	if !errors.Is(err, ort.ErrClosed) {
		t.Errorf("Get gave %v", err)
	}
	if _, err := s.Run(t.Context(), tensor.Map{"x": tensor.New(1, 2)}); !errors.Is(err, ort.ErrClosed) {
		t.Errorf("the late session gave %v", err)
	}
}
