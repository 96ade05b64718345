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
	task := func(set string, shots int, backbones ...string) *experiment.Task {
		c, b := experiment.Defaults(), &experiment.Backbones{}
		c.Data.Set, c.Data.Shots = set, shots
		for _, name := range backbones {
			b.Distinct = append(b.Distinct, &bundle.Bundle{Name: name})
		}
		return &experiment.Task{Protocol: &experiment.Protocol{Config: c}, Backbones: b}
	}
	var all FeatureLocks
	var inside atomic.Int32
	var group sync.WaitGroup
	for _, b := range []*experiment.Task{task("pacs", 0, "a", "b"), task("pacs", 4, "b", "a"), task("pacs", 0, "b",
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
	done := all.Lock(task("pacs", 0, "a"))
	all.Lock(task("pacs", 0, "b"))()
	all.Lock(task("digits", 0, "a"))()
	done()
}
