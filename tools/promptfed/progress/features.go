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

// Lock locks the features of a task until unlock is called. It takes locks in a fixed order, which excludes deadlocks.
func (l *FeatureLocks) Lock(t *experiment.Task) (unlock func()) {
	var keys []string
	d := t.Protocol.Config.Data
	for _, f := range t.Backbones.Distinct {
		keys = append(keys, fmt.Sprintf("%s %+v %d", f.Name, d.Config, d.Views))
	}

	slices.Sort(keys)
	keys = slices.Compact(keys) // two backbones may have one name
	var held []*sync.Mutex
	for _, key := range keys {
		lock, _ := l.locks.LoadOrStore(key, new(sync.Mutex))
		held = append(held, lock.(*sync.Mutex))
		lock.(*sync.Mutex).Lock()
	}

	return func() {
		for _, l := range held {
			l.Unlock()
		}
	}
}
