package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/configs"
	"promptfed/runtime/goldentest"
)

func TestFailuresByReason(t *testing.T) {
	got := byReason(map[string]string{"c/seed-1": "no data", "a/seed-2": "no data", "b/seed-1": "bad image"})
	want := []string{"a/seed-2 and 1 more cell: no data", "b/seed-1: bad image"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A sweep begins if one of its cells finds its images.
func TestCheckRoots(t *testing.T) {
	cell := func(set, root string) configs.Cell {
		var c configs.Cell
		c.Config.Data.Set, c.Config.Data.Root = set, root
		return c
	}
	gone, here := cell("folder", t.TempDir()+"/gone"), cell("folder", t.TempDir())
	for _, fine := range [][]configs.Cell{nil, {gone, here}, {gone, cell("synthetic", "DATA")},
		{gone, cell("folder", "")}} {
		if err := checkRoots(fine); err != nil {
			t.Error(err)
		}
	}
	err := checkRoots([]configs.Cell{gone, gone})
	goldentest.WantError(t, err, "data.root", "gone does not exist", "--set data.root=DIR", "--smoke")
	if strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}

// Cells that do not set their number of processors share them equally.
func TestShare(t *testing.T) {
	cell := func(workers int, provider string) configs.Cell {
		var c configs.Cell
		c.Config.Runtime.Workers, c.Config.Runtime.Provider = workers, provider
		return c
	}
	plain := slices.Repeat([]configs.Cell{cell(0, "cpu")}, 10)
	for _, c := range []struct {
		jobs          int
		cells         []configs.Cell
		processors    int
		want, workers int
	}{
		{0, plain, 8, 8, 1}, {0, plain[:3], 8, 3, 2}, {0, plain[:1], 8, 1, 0}, {4, plain, 2, 4, 1}, {0, nil, 8, 1, 0},
		{0, append(plain, cell(4, "cpu")), 8, 2, 4}, {0, append(plain, cell(0, "cuda")), 8, 1, 0},
		{3, append(plain, cell(0, "cuda")), 8, 3, 2},
	} {
		if jobs, workers := share(c.jobs, c.cells, c.processors); jobs != c.want || workers != c.workers {
			t.Errorf("%d jobs asked, %d cells, %d processors: %d jobs with %d workers, want %d with %d", c.jobs,
				len(c.cells), c.processors, jobs, workers, c.want, c.workers)
		}
	}
}
