package progress

import (
	"fmt"
	"slices"
	"sync"

	"promptfed/federation/experiment"
)

// Turns has cells that need the same features wait for the one that computes them; they find them in the cache.
type Turns struct {
	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

// Take waits for the turn of an experiment. Locks are taken in one order, so that no two wait for each other.
func (t *Turns) Take(b *experiment.Built) (done func()) {
	set := b.Config.Data.Config
	set.Shots = 0
	var keys []string
	for _, f := range b.Bundles {
		keys = append(keys, fmt.Sprintf("%s %+v", f.Name, set))
	}
	slices.Sort(keys)
	var held []*sync.Mutex
	for _, key := range keys {
		t.mu.Lock()
		if t.locks == nil {
			t.locks = map[string]*sync.Mutex{}
		}
		l := t.locks[key]
		if l == nil {
			l = &sync.Mutex{}
			t.locks[key] = l
		}
		t.mu.Unlock()
		l.Lock()
		held = append(held, l)
	}
	return func() {
		for _, l := range held {
			l.Unlock()
		}
	}
}
