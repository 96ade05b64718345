package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"promptfed/runtime/goldentest"
)

func TestCache(t *testing.T) {
	c := newValueCache(10, keptTests)
	key := func(s string) [sha256.Size]byte { return sha256.Sum256([]byte(s)) }
	var made atomic.Int64
	get := func(name string, bytes int) any {
		v, err := c.once(key(name), func() (any, int, error) { made.Add(1); return name, bytes, nil })
		goldentest.NoError(t, err)
		return v
	}
	get("a", 4)
	get("b", 4)
	if get("a", 4) != "a" || made.Load() != 2 {
		t.Errorf("made %d values, want 2", made.Load())
	}
	get("c", 4) // 12 bytes: the cache evicts b, the least recently used value
	get("a", 4)
	if made.Load() != 3 {
		t.Error("a went before b")
	}
	get("b", 4)
	if made.Load() != 4 {
		t.Error("b was still there")
	}
	get("larger than all", 11)
	get("larger than all", 11)
	if get("b", 4); made.Load() != 6 || c.size > c.capacity || len(c.at) != c.used.Len() {
		t.Errorf("made %d, %d bytes in %d", made.Load(), c.size, len(c.at))
	}
	failed := errors.New("failed")
	for range 2 {
		if _, err := c.once(key("bad"), func() (any, int, error) {
			made.Add(1)
			return nil, 1, failed
		}); err != failed {
			t.Error(err)
		}
	}
	if made.Load() != 8 {
		t.Error("an error was remembered")
	}
	made.Store(0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { get("at once", 1) })
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("eight that ask at once made it %d times", made.Load())
	}
}

// A caller that waits for the computation of another caller computes the value itself when the other one stops.
func TestCacheStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, key := newValueCache(10, keptTests), sha256.Sum256([]byte("a"))
		stop := make(chan struct{})
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := c.once(key, func() (any, int, error) {
				<-stop
				return nil, 0, context.Canceled
			}); err != context.Canceled {
				t.Error(err)
			}
		})
		synctest.Wait() // the first caller computes
		callers.Go(func() {
			if v, err := c.once(key, func() (any, int, error) { return "a", 1, nil }); v != "a" || err != nil {
				t.Errorf("%v, %v", v, err)
			}
		})
		synctest.Wait() // the second caller waits for it
		close(stop)
		callers.Wait()
	})
}

// TestCacheForgets: when a round begins, the cache drops the values that nobody requested in the last two rounds with
// tests. The order of calls within a round does not matter.
func TestCacheForgets(t *testing.T) {
	c := newValueCache(100, keptTests)
	made := map[string]int{}
	get := func(name string) {
		if _, err := c.once(sha256.Sum256([]byte(name)), func() (any, int, error) {
			made[name]++
			return name, 1, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, round := range []int{0, 5, 10, 15} {
		c.begin(round)
		c.begin(round)
		get("every round")
		if round == 0 || round == 15 {
			get("first and last") // not requested in rounds 5 and 10
		}
		if round == 5 || round == 15 {
			get("one left out") // 10
		}
		c.begin(round)
	}
	if made["every round"] != 1 || made["first and last"] != 2 || made["one left out"] != 1 || c.size != 3 {
		t.Errorf("made %v, %d bytes", made, c.size)
	}
}
