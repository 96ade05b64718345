package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/runtime/goldentest"
)

func (r Reproduce) misaligned(s *data.Set, parts []partition.Client) (images, labels []string) {
	r.misalign(s, parts, 1)
	for k := range parts {
		train, _, test := parts[k].Of(s)
		for _, list := range [][]data.Example{train, test} {
			image, label := "", []int{}
			for _, e := range list {
				image, label = image+e.ID, append(label, e.Label)
			}
			slices.Sort(label)
			images, labels = append(images, image), append(labels, fmt.Sprint(label))
		}
	}
	return images, labels
}

// Two domains of lists of their own, by hand: images a to f of domain 0 and g to i of domain 1, labels in brackets.
//
//	train a(0) b(1) c(2) d(0) e(1) f(2) | g(2) h(1) i(0)    test A(0) B(1) C(2) | D(1)
//
// Client 0 is dealt b, d and f: its labels are 1, 0 and 2, its images the first three of its domain, a, b and c. Client
// 1 is dealt a, c and e: it has the same images. Client 2 is dealt h alone, and gets the first of domain 1, g, with
// label 1.
func TestMisalignedLabels(t *testing.T) {
	lists := func() (*data.Set, []partition.Client) {
		list := func(names string, labels []int, second int) (out []data.Example) {
			for i, y := range labels {
				e := data.Example{ID: names[i : i+1], Label: y}
				if i >= second {
					e.Domain = 1
				}
				out = append(out, e)
			}
			return out
		}
		return &data.Set{Classes: []string{"x", "y", "z"}, Domains: []string{"p", "q"},
				Train: list("abcdefghi", []int{0, 1, 2, 0, 1, 2, 2, 1, 0}, 6), Test: list("ABCD", []int{0, 1, 2, 1},
					3)},
			[]partition.Client{{Train: []int{1, 3, 5}, Test: []int{0, 2}}, {Train: []int{0, 2, 4}, Test: []int{1}},
				{Train: []int{7}, Test: []int{3}}}
	}
	s, parts := lists()
	images, labels := Reproduce{Labels: misaligned}.misaligned(s, parts)
	if want := []string{"abc", "AB", "abc", "A", "g", "D"}; !slices.Equal(images, want) {
		t.Errorf("images %q, want %q", images, want)
	}
	if want := []string{"[0 1 2]", "[0 2]", "[0 1 2]", "[1]", "[1]", "[1]"}; !slices.Equal(labels, want) {
		t.Errorf("labels %q, want %q", labels, want)
	}
	s, parts = lists()
	if images, _ = (Reproduce{Labels: asMeant}).misaligned(s, parts); !slices.Equal(images, []string{"bdf", "AC", "ace",
		"B", "h", "D"}) {
		t.Errorf("without the defect, images are %q", images)
	}
}

// Synthetic images are named by their class. Misaligned labels are correct about as often as labels drawn at random;
// the rest of the run is as it was dealt. Shuffled class names are those of the set in another order, and labels do not
// follow it. The set's notes and the summary name both, and the identity of the experiment differs.
func TestReproduce(t *testing.T) {
	c := smallConfig("zeroshot")
	c.Data.Generator.Train, c.Train.Rounds = 12, 1
	plain := open(t, c)
	c.Reproduce.Labels = misaligned
	wrong := open(t, c)
	right, total := 0, 0
	for k := range plain.Task.Data.Parts {
		was, _, _ := plain.Task.Data.Parts[k].Of(plain.Task.Data.Set)
		is, _, _ := wrong.Task.Data.Parts[k].Of(wrong.Task.Data.Set)
		counts := func(f *Federation, list []data.Example) string { return fmt.Sprint(f.Task.Data.Set.Counts(list)) }
		if len(was) != len(is) || counts(plain, was) != counts(wrong, is) {
			t.Errorf("client %d has other numbers of labels", k)
		}
		for _, e := range is {
			total++
			if i := slices.IndexFunc(plain.Task.Data.Set.Train,
				func(x data.Example) bool { return x.ID == e.ID }); plain.Task.Data.Set.Train[i].Label == e.Label {
				right++
			}
		}
	}
	// 96 labels of 4 classes, each correct with probability 1/4: 24, with a standard deviation of 4.2.
	if total != 96 || right < 10 || right > 38 {
		t.Errorf("%d of %d labels are right", right, total)
	}
	defect := "reproduce.labels: misaligned"
	if r := finish(t, wrong).Summary.Reproduces; !slices.Equal(r, []string{defect}) {
		t.Errorf("the summary says %q", r)
	}
	if !slices.ContainsFunc(wrong.Task.Data.Set.Notes, func(n string) bool { return strings.Contains(n, defect) }) {
		t.Errorf("the notes are %q", wrong.Task.Data.Set.Notes)
	}
	if r := finish(t, plain).Summary.Reproduces; r != nil || len(plain.Task.Data.Set.Notes) > 0 {
		t.Errorf("a plain run says %q, %q", r, plain.Task.Data.Set.Notes)
	}
	if plain.Experiment.Fingerprint() == wrong.Experiment.Fingerprint() {
		t.Error("a run could be resumed with its labels misaligned")
	}

	c.Reproduce = Reproduce{Labels: asMeant, ClassNames: shuffled}
	orders := map[string]bool{}
	for seed := range uint64(4) {
		c.Seed = seed
		names := open(t, c)
		orders[fmt.Sprint(names.Experiment.Classes)] = true
		sorted := slices.Sorted(slices.Values(names.Experiment.Classes))
		if want := slices.Sorted(slices.Values(plain.Experiment.Classes)); !slices.Equal(sorted, want) {
			t.Errorf("classes are %q", names.Experiment.Classes)
		}
		for i, e := range names.Task.Data.Set.Train {
			if e.Label != plain.Task.Data.Set.Train[i].Label {
				t.Fatalf("image %s has another label", e.ID)
			}
		}
	}
	if len(orders) < 2 {
		t.Errorf("four seeds have the orders %v", orders)
	}
}

func TestReproduceIsChecked(t *testing.T) {
	c := smallConfig("promptfl")
	c.Reproduce.Labels = "wrong"
	refuses(t, c, "reproduce.labels", "misaligned")
	c.Reproduce.Labels, c.Data.Split = misaligned, "pooled"
	refuses(t, c, "reproduce.labels", "data.split")
	c.Data.Split, c.Data.ValShare = "given", 0.2
	refuses(t, c, "reproduce.labels", "data.val_share")
	c = smallConfig("promptfl")
	c.Reproduce.ClassNames = shuffled
	_, err := OpenServer(c, false)
	goldentest.WantError(t, err, "reproduce")
	c.Reproduce, c.With = Defaults().Reproduce, []string{"fedprox"}
	if got := c.Reproduces(); got != nil {
		t.Errorf("a plain run reproduces %q", got)
	}
	c.Options = map[string]any{"fedprox": map[string]any{"detached": true}}
	if got := c.Reproduces(); !slices.Equal(got, []string{"options.detached: true"}) {
		t.Errorf("FedProx without gradient: %q", got)
	}
	c.With, c.Options, c.Train.State = nil, nil, "shared"
	if got := c.Reproduces(); !slices.Equal(got, []string{"train.optimizer_state: shared"}) {
		t.Errorf("one optimizer for all clients: %q", got)
	}
	if _, err := OpenData(context.Background(), c, nil); err != nil {
		t.Error(err)
	}
}
