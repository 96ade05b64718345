package partition

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/runtime/goldentest"
)

// TestCutValidation: a client has 6 examples of class 0, 3 of class 1 and 1 of class 2, and a fifth of them is cut, 2
// of 10. Places by hand: 1/12, 3/12, 5/12, ... for class 0, 1/6, 3/6, 5/6 for class 1, 1/2 for class 2; the lowest two
// are one of class 0 (1/12) and one of class 1 (1/6). At 0.4 four are cut: 1/12, 1/6, 3/12 and 5/12, so three of class
// 0 and one of class 1.
func TestCutValidation(t *testing.T) {
	set := func() *data.Set {
		s := &data.Set{Classes: []string{"a", "b", "c"}}
		for i, y := range []int{0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 0} {
			s.Train = append(s.Train, data.Example{ID: fmt.Sprint(i), Label: y})
		}
		return s
	}
	for share, want := range map[float64][]int{0.2: {1, 1, 0}, 0.4: {3, 1, 0}} {
		s, clients := set(), []Client{{Train: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, {Train: []int{10}}}
		goldentest.NoError(t, CutValidation(s, clients, share, 3))
		train, val, _ := clients[0].Of(s)
		if got := s.Counts(val); !reflect.DeepEqual(got, want) {
			t.Errorf("share %v: %v examples of the classes are for validation, want %v", share, got, want)
		}
		for _, e := range val {
			if slices.ContainsFunc(train, func(o data.Example) bool { return o.ID == e.ID }) {
				t.Errorf("share %v: %s is trained on and kept for validation", share, e.ID)
			}
		}
		if len(train)+len(val) != 10 {
			t.Errorf("share %v: %d and %d examples of 10", share, len(train), len(val))
		}
		if sum := Summarise(s, clients); sum.Unused != 0 || sum.Repeated != 0 { // validation examples are used
			t.Errorf("share %v: %d examples unused and %d repeated", share, sum.Unused, sum.Repeated)
		}
		if len(clients[1].Train) != 1 || len(clients[1].Val) != 0 {
			t.Errorf("a client with one example kept %v to train on and %v for validation", clients[1].Train,
				clients[1].Val)
		}
		again, twin := set(), []Client{{Train: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, {Train: []int{10}}}
		if err := CutValidation(again, twin, share, 3); err != nil || !reflect.DeepEqual(twin, clients) {
			t.Errorf("share %v: the same seed gave %v and %v (%v)", share, clients, twin, err)
		}
	}
	// Two clients that share example 4 have one entry for it in the set's list.
	s, clients := set(), []Client{{Train: []int{4, 5}}, {Train: []int{4, 5}}}
	goldentest.NoError(t, CutValidation(s, clients, 0.5, 3))
	for _, c := range clients {
		if _, val, _ := c.Of(s); len(val) != 1 || len(c.Train) != 1 || val[0].ID == s.Train[c.Train[0]].ID {
			t.Errorf("of two examples, %v is for training and %v for validation", c.Train, val)
		}
	}
	for share, s := range map[float64]*data.Set{0.2: {Pool: []data.Example{{}}}, 0.3: {Val: []data.Example{{}}},
		0.6: {}, -1: {}} {
		if err := CutValidation(s, nil, share, 1); err == nil || !strings.HasPrefix(err.Error(), "data.val_share: ") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("share %v of %+v: %v", share, s, err)
		}
	}
}
