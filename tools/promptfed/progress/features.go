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
	var keys []string
	for _, f := range b.Bundles {
		keys = append(keys, fmt.Sprintf("%s %+v %d", f.Name, b.Config.Data.Config, b.Config.Data.Views))
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
