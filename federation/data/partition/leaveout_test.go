package partition

import (
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// TestLeaveOut: for every kind, clients and the left-out examples partition the set by domain.
func TestLeaveOut(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		for _, kind := range []string{"iid", "pathological", "dirichlet", "domain", "domain-dirichlet", "classes"} {
			for _, code := range []bool{false, true} {
				s := toy(4, 3, 20, 2, 10)
				if pooled {
					s.MergeSplits(true)
				}
				p := Config{Kind: kind, Clients: 4, Beta: 5, MinSize: 1, Classes: 2, LeaveOut: []string{"domain1"},
					Code: code}
				clients := split(t, p, s, 1)
				out, err := LeftOut(p, s)
				if err != nil || len(out) != 1 || out[0].Domain != "domain1" {
					t.Fatalf("left out: %+v, %v", out, err)
				}
				for _, sp := range s.Splits() {
					list := lists[sp.Name]
					for _, i := range held(clients, list) {
						if (*sp.Examples)[i].Domain == 1 {
							t.Fatalf("%s: a client holds example %d of the domain that is left out", kind, i)
						}
					}
					for _, i := range list(out[0]) {
						if (*sp.Examples)[i].Domain != 1 {
							t.Fatalf("%s: example %d is left out", kind, i)
						}
					}
					if got := held(append(slices.Clone(clients), out[0]), list); !slices.Equal(got,
						tensor.Indices(len(*sp.Examples))) {
						t.Errorf("%s code %v pooled %v: %s has %d examples, %d are held or left out", kind, code,
							pooled, sp.Name, len(*sp.Examples), len(got))
					}
				}
				if pooled && (len(out[0].Test) != 4*32 || out[0].Train != nil) {
					t.Errorf("of the pool %d test examples are left out", len(out[0].Test))
				}
			}
		}
	}
	s := toy(4, 3, 20, 0, 10)
	if out, err := LeftOut((Config{}), s); err != nil || len(out) != 0 {
		t.Errorf("nothing left out: %v, %v", out, err)
	}
	_, err := LeftOut(Config{LeaveOut: []string{"moon"}}, s)
	goldentest.WantError(t, err, "partition.leave_out", "moon", "domain0")
}

// TestHalves: of 5 classes the first 3 are base, as in CoOp, and the last 2 are new, counted from 0.
func TestHalves(t *testing.T) {
	s := coarse(toy(5, 2, 3, 1, 2), 2)
	for _, c := range []struct {
		part    string
		classes []string
		first   int
	}{{"all", s.Classes, 0}, {"base", []string{"class0", "class1", "class2"}, 0}, {"new", []string{"class3", "class4"},
		3}} {
		half, err := ClassSubset(s, c.part)
		if err != nil || !slices.Equal(half.Classes, c.classes) || len(half.Coarse) != len(c.classes) ||
			half.Coarse[0] != s.Coarse[c.first] {
			t.Fatalf("%s: %+v, %v", c.part, half, err)
		}
		if len(half.Train) != 6*len(c.classes) || len(half.Val) != 2*len(c.classes) ||
			len(half.Test) != 4*len(c.classes) || half.Pool != nil {
			t.Errorf("%s: %d, %d, %d examples", c.part, len(half.Train), len(half.Val), len(half.Test))
		}
		for _, e := range half.Train {
			if e.ID[len(e.ID)-1] != s.Classes[e.Label+c.first][5] { // the last digit of a toy's ID is its class
				t.Errorf("%s: example %s has label %d", c.part, e.ID, e.Label)
			}
		}
	}
	if s.Train[4].Label != 4 || len(s.Classes) != 5 {
		t.Error("the set itself has changed")
	}
	s.MergeSplits(true)
	if half, err := ClassSubset(s, "new"); err != nil || len(half.Pool) != 24 || half.Train != nil {
		t.Errorf("pooled: %+v, %v", half, err)
	}
	_, err := ClassSubset(toy(1, 0, 1, 0, 1), "new")
	goldentest.WantError(t, err, "data.classes", "1 classes leave none", "set it to all")
	_, err = ClassSubset(s, "old")
	goldentest.WantError(t, err, "data.classes", "old", "base")
}
