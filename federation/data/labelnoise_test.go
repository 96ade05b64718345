package data

import (
	"math"
	"slices"
	"testing"
)

func changed(a, b []int64) int {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// The number of wrong labels is the rate times the number of labels, rounded down: 3 of 10 at 0.3, 29 of 100 at 0.29, 2
// of 11 at 0.25. No wrong label keeps its class, and a pair flip is the next class. Equal seeds and clients have equal
// labels.
func TestLabelNoise(t *testing.T) {
	for _, c := range []struct {
		n, want int
		rate    float64
	}{{10, 3, 0.3}, {100, 29, 0.29}, {11, 2, 0.25}, {10, 0, 0}, {0, 0, 0.5}} {
		labels := make([]int64, c.n)
		for i := range labels {
			labels[i] = int64(i % 5)
		}
		for _, kind := range []string{Symmetric, PairFlip} {
			noise := LabelNoise{Kind: kind, Rate: c.rate, Clients: 1, Among: "all"}
			got, wrong := noise.Apply(labels, 5, 7, 2)
			if wrong != c.want || changed(labels, got) != c.want {
				t.Errorf("%s at %v of %d: %d wrong, %d changed; by hand %d", kind, c.rate, c.n, wrong,
					changed(labels, got), c.want)
			}
			for i := range got {
				if kind == PairFlip && got[i] != labels[i] && got[i] != (labels[i]+1)%5 {
					t.Errorf("a pair flip made %d of %d", got[i], labels[i])
				}
			}
			again, _ := noise.Apply(labels, 5, 7, 2)
			other, _ := noise.Apply(labels, 5, 7, 3)
			if !slices.Equal(got, again) || c.want > 2 && slices.Equal(got, other) {
				t.Errorf("%s: seed and client 2 give %v, then %v; client 3 %v", kind, got, again, other)
			}
		}
	}
	labels := []int64{1, 3, 3, 1}
	if got, wrong := (LabelNoise{Kind: PairFlip, Rate: 0.99, Among: "own"}).Apply(labels, 9, 1, 0); wrong != 3 ||
		changed(labels, got) != 3 || slices.ContainsFunc(got, func(y int64) bool { return y != 1 && y != 3 }) {
		t.Errorf("among a client's own classes 1 and 3: %v", got)
	}
	if _, wrong := (LabelNoise{Kind: PairFlip, Rate: 0.9, Among: "own"}).Apply([]int64{4, 4}, 9, 1, 0); wrong != 0 {
		t.Error("a client of one class has wrong labels among its own")
	}
}

// Of 40,000 labels of class 0 among 5 classes, 16,000 are wrong; each other class has 4,000 of them, within three
// standard deviations of a binomial.
func TestSymmetricNoiseIsUniform(t *testing.T) {
	got, _ := LabelNoise{Kind: Symmetric, Rate: 0.4, Among: "all"}.Apply(make([]int64, 40000), 5, 1, 0)
	counts := make([]int, 5)
	for _, y := range got {
		counts[y]++
	}
	if counts[0] != 24000 {
		t.Errorf("%d labels are right", counts[0])
	}
	for _, n := range counts[1:] {
		if d := math.Abs(float64(n) - 4000); d > 3*math.Sqrt(16000*0.25*0.75) {
			t.Errorf("wrong labels %v", counts)
		}
	}
}

// 3 of 10 clients are noisy at 0.25 (2.5, rounded up), the same for equal seeds.
func TestNoisyClients(t *testing.T) {
	n := LabelNoise{Kind: Symmetric, Clients: 0.25}
	got := n.Noisy(10, 3)
	count := 0
	for _, yes := range got {
		if yes {
			count++
		}
	}
	if count != 3 || !slices.Equal(got, n.Noisy(10, 3)) || slices.Equal(got, n.Noisy(10, 4)) {
		t.Errorf("%v", got)
	}
	if slices.Contains(NoLabelNoise().Noisy(4, 1), true) {
		t.Error("noisy clients without noise")
	}
}
