package progress

import (
	"fmt"
	"slices"
	"sync"

	"promptfed/federation/experiment"
)

// FeatureLocks lets one cell compute features while other cells that need the same features wait. The others then read
// the features from the cache.
type FeatureLocks struct{ locks sync.Map }

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
		l, _ := t.locks.LoadOrStore(key, new(sync.Mutex))
		held = append(held, l.(*sync.Mutex))
		l.(*sync.Mutex).Lock()
	}
	return func() {
		for _, l := range held {
			l.Unlock()
		}
	}
}
