package progress

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"promptfed/federation/experiment"
	"promptfed/models/bundle"
)

// Runs that need features of the same set and backbone take turns, whatever the order they name backbones in; others do
// not wait.
func TestTurns(t *testing.T) {
	built := func(set string, shots int, backbones ...string) *experiment.Built {
		b := &experiment.Built{Config: experiment.Defaults()}
		b.Config.Data.Set, b.Config.Data.Shots = set, shots
		for _, name := range backbones {
			b.Bundles = append(b.Bundles, &bundle.Bundle{Name: name})
		}
		return b
	}
	var all Turns
	var inside atomic.Int32
	var group sync.WaitGroup
	for _, b := range []*experiment.Built{built("pacs", 0, "a", "b"), built("pacs", 4, "b", "a"), built("pacs", 0,
		"b")} {
		group.Go(func() {
			for range 200 {
				done := all.Take(b)
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
	done := all.Take(built("pacs", 0, "a"))
	all.Take(built("pacs", 0, "b"))()
	all.Take(built("digits", 0, "a"))()
	done()
}
