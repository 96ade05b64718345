package progress

import (
	"fmt"
	"slices"
	"sync"

	"promptfed/federation/experiment"
	"promptfed/models/bundle"
	"promptfed/runtime/convert"
)

// FeatureLocks lets one cell compute features while other cells that need the same features wait. The others then read
// the features from the cache.
type FeatureLocks struct{ locks sync.Map }

// Lock locks the features of a task until unlock is called. It takes locks in a fixed order, which excludes deadlocks.
func (l *FeatureLocks) Lock(t *experiment.Task) (unlock func()) {
	d := t.Protocol.Config.Data
	keys := convert.Slice(t.Backbones.Distinct, func(b *bundle.Bundle) string {
		return fmt.Sprintf("%s %+v %d", b.Name, d.Config, d.Views)
	})
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
