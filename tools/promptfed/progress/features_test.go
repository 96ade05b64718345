package progress

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"promptfed/federation/experiment"
	"promptfed/models/bundle"
)

// Runs that need features of the same set and backbone run one after the other, whatever the order of their backbones.
// Other runs do not wait.
func TestFeatureLocks(t *testing.T) {
	built := func(set string, shots int, backbones ...string) *experiment.Built {
		b := &experiment.Built{Config: experiment.Defaults()}
		b.Config.Data.Set, b.Config.Data.Shots = set, shots
		for _, name := range backbones {
			b.Bundles = append(b.Bundles, &bundle.Bundle{Name: name})
		}
		return b
	}
	var all FeatureLocks
	var inside atomic.Int32
	var group sync.WaitGroup
	for _, b := range []*experiment.Built{built("pacs", 0, "a", "b"), built("pacs", 4, "b", "a"), built("pacs", 0,
		"b")} {
		group.Go(func() {
			for range 200 {
				done := all.Lock(b)
				if inside.Add(1) != 1 {
					t.Error("two compute the same features")
				}
				runtime.Gosched()
				inside.Add(-1)
				done()
			}
		})
	}
	group.Wait()
	done := all.Lock(built("pacs", 0, "a"))
	all.Lock(built("pacs", 0, "b"))()
	all.Lock(built("digits", 0, "a"))()
	done()
}
