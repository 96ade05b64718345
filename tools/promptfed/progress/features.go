package progress

import (
	"fmt"
	"slices"
	"sync"

	"promptfed/federation/experiment"
)

// FeatureLocks lets one cell compute features while other cells that need the same features wait. The others then read
// the features from the cache.
type FeatureLocks struct {
	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

// Lock locks the features of an experiment until unlock is called. It takes locks in a fixed order, which excludes
// deadlocks.
func (t *FeatureLocks) Lock(b *experiment.Built) (unlock func()) {
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
