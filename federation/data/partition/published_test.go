package partition

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/runtime/goldentest"
)

// codeCase is a partition that tools/golden/partition.py computed: a second implementation of the public code's
// algorithm, in Python, on the draws of CPython 3.11 and NumPy 2.4. Sizes are those of train, then of test.
type codeCase struct {
	Kind                          string
	Classes, Clients, Train, Test int
	Seed                          uint64
	Salt, Domains, Supers         int
	Beta                          float64
	MinSize                       int `json:"min_size"`
	Own, Shots                    int
	Repeat                        float64
	Pooled, Never                 bool
	Sizes                         [][]int
	SHA256                        string
	First                         [][]int
}

// mixed computes labels and domains: a multiplicative hash of the position in the list.
func mixed(i, salt int) int { return int(uint32(i+salt)*2654435761) >> 9 }

func (c codeCase) set() *data.Set {
	s := toy(c.Classes, c.Domains, 0, 0, 0)
	for l, n := range []int{c.Train, c.Test} {
		to := []*[]data.Example{&s.Train, &s.Test}[l]
		for i := range n {
			e := data.Example{ID: fmt.Sprint(l, i), Label: mixed(i, c.Salt+l) % c.Classes}
			if c.Domains > 0 {
				e.Domain = mixed(i, c.Salt+l+7919) % c.Domains
			}
			*to = append(*to, e)
		}
	}
	for k := range c.Classes {
		if c.Supers > 0 {
			s.Coarse = append(s.Coarse, (k*7+3)%c.Supers)
		}
	}
	for i := range c.Supers {
		s.Superclasses = append(s.Superclasses, fmt.Sprint("super", i))
	}
	if c.Pooled {
		s.MergeSplits(true)
	}
	return s
}

func (c codeCase) config() Config {
	return Config{Kind: c.Kind, Clients: c.Clients, Beta: c.Beta, MinSize: c.MinSize, Classes: c.Own,
		Repeat:   c.Repeat,
		FineBeta: 10, Code: true}
}

func TestCode(t *testing.T) {
	var cases []codeCase
	goldentest.ReadJSON(t, "testdata/code.json", &cases)
	kinds := map[string]int{}
	for _, c := range cases {
		kinds[c.Kind]++
		name := fmt.Sprintf("%s %d classes %d clients beta %g shots %d seed %d", c.Kind, c.Classes, c.Clients, c.Beta,
			c.Shots, c.Seed)
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
	for _, k := range Kinds() {
		if k.published != nil && kinds[k.Name] == 0 {
			t.Errorf("no golden partition of kind %s", k.Name)
		}
	}
}

func (c codeCase) run(t *testing.T) {
	p, s := c.config(), c.set()
	kind, err := check(p, s)
	goldentest.NoError(t, err)
	job := newJob(p, s, c.Shots, c.Seed)
	goldentest.NoError(t, job.seedCode(kind))
	got, err := kind.published(job)
	if c.Never {
		goldentest.WantError(t, err, "seeds its generator with 0", "never end", "partition.seed")
		return
	}
	goldentest.NoError(t, err)
	var lines []string
	empty := false
	for l, indices := range []func(Client) []int{func(c Client) []int { return c.Train },
		func(c Client) []int { return c.Test }} {
		var sizes []int
		for _, client := range got {
			sizes = append(sizes, len(indices(client)))
			lines = append(lines, strings.Trim(fmt.Sprint(indices(client)), "[]"))
		}
		empty = empty || slices.Min(sizes) == 0
		if !slices.Equal(sizes, c.Sizes[l]) {
			t.Fatalf("list %d: sizes\n%v, want\n%v", l, sizes, c.Sizes[l])
		}
		if first := indices(got[0]); !slices.Equal(first[:min(len(first), 20)], c.First[l]) {
			t.Fatalf("list %d: client 0 begins\n%v, want\n%v", l, first[:min(len(first), 20)], c.First[l])
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n") + "\n"))
	if hex.EncodeToString(sum[:]) != c.SHA256 {
		t.Fatal("the sizes are right, but some client holds other examples")
	}
	whole, err := Split(p, s, c.Shots, c.Seed)
	if empty {
		goldentest.WantError(t, err, "partition "+c.Kind, "no ", "example")
	} else if err != nil || fmt.Sprint(whole) != fmt.Sprint(got) {
		t.Errorf("Split does not give what the kind does: %v", err)
	}
}

// partition.seed replaces the seed that the public code sets.
func TestSeedOfCode(t *testing.T) {
	set := coarse(toy(6, 0, 20, 0, 5), 2)
	split := func(seed uint64) string {
		got, err := Split(Config{Kind: "pachinko", Clients: 3, Beta: 1, FineBeta: 10, Code: true, Seed: seed}, set, 0,
			5)
		goldentest.NoError(t, err)
		return fmt.Sprint(got)
	}
	if a, b := split(0), split(1); a == b || b == split(2) || b != split(1) {
		t.Error("the seed is another one")
	}
}
