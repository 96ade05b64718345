package data

import (
	"errors"
	"math"
	"slices"

	"promptfed/federation/configtags"
)

// Kinds of label noise.
const (
	NoNoise   = "none"
	Symmetric = "symmetric"
	PairFlip  = "pair"
)

// LabelNoise is the section data.label_noise: each noisy client has wrong labels on a randomly chosen share Rate of its
// training examples (rounded down). A symmetric label is any other class with equal probability (transition matrix with
// r/(C-1) off and 1-r on the diagonal). A pair flip is the next class, and the first class after the last. NLPrompt
// (CVPR 2025) trains with both, with this exact number of wrong labels in the whole set.
type LabelNoise struct {
	Kind    string  `config:"kind" in:"none|symmetric|pair"`
	Rate    float64 `config:"rate" help:"share of wrong training labels on a noisy client, below 1"`
	Clients float64 `config:"clients" in:"0..1" help:"share of noisy clients, drawn from the seed"`
	Among   string  `config:"among" in:"all|own"`
}

// LongHelp implements configtags.LongHelp.
func (LabelNoise) LongHelp() map[string]string {
	return map[string]string{
		"kind": "wrong training labels of simulated clients (docs/robustness.md): none, symmetric (any other class) " +
			"or pair (the next class)",
		"among": "classes that wrong labels are drawn from: all, or own (those of the client; a client with one " +
			"class keeps its labels)",
	}
}

// NoLabelNoise returns the defaults, which files and flags override.
func NoLabelNoise() LabelNoise {
	return LabelNoise{Kind: NoNoise, Rate: 0.3, Clients: 1, Among: amongAll}
}

const (
	amongAll = "all"
	amongOwn = "own"
)

// Enabled reports whether labels are changed.
func (n LabelNoise) Enabled() bool { return n.Kind != NoNoise }

// Check returns everything that is wrong with the section.
func (n LabelNoise) Check() error {
	return errors.Join(configtags.Check("data.label_noise.", n), configtags.Need(n.Rate >= 0 && n.Rate < 1,
		"data.label_noise.rate", "%v; it must be at least 0 and below 1", n.Rate))
}

// Noisy reports for each client whether it is noisy.
func (n LabelNoise) Noisy(clients int, seed uint64) []bool {
	out := make([]bool, clients)
	if n.Enabled() {
		for _, i := range NewRand(seed, "noisy clients").Perm(clients)[:RoundedShare(n.Clients, clients)] {
			out[i] = true
		}
	}
	return out
}

// RoundedShare returns a share of n, rounded to the nearest whole number.
func RoundedShare(share float64, n int) int { return min(n, int(math.Floor(share*float64(n)+0.5))) }

// Apply returns the labels as a noisy client has them, and how many are wrong. The result depends only on labels, seed
// and client.
func (n LabelNoise) Apply(labels []int64, classes int, seed uint64, client int) (noisy []int64, wrong int) {
	noisy = slices.Clone(labels)
	var among []int64
	for c := range int64(classes) {
		if n.Among != amongOwn || slices.Contains(labels, c) {
			among = append(among, c)
		}
	}

	if !n.Enabled() || len(among) < 2 {
		return noisy, 0
	}

	r := NewRand(seed, "label noise", client)
	count := int(n.Rate*float64(len(labels)) + 1e-9)
	for _, i := range r.Perm(len(labels))[:count] {
		at, step := slices.Index(among, labels[i]), 1
		if n.Kind == Symmetric {
			step += r.IntN(len(among) - 1)
		}
		noisy[i] = among[(at+step)%len(among)]
	}

	return noisy, count
}
