package partition

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"promptfed/federation/data"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// coarse adds superclasses to a toy set, so that the first one holds every second class.
func coarse(s *data.Set, supers int) *data.Set {
	for i := range supers {
		s.Superclasses = append(s.Superclasses, fmt.Sprint("super", i))
	}
	for k := range s.Classes {
		s.Coarse = append(s.Coarse, k%2*(k%supers))
	}
	return s
}

var lists = map[string]func(Client) []int{"train": func(c Client) []int { return c.Train },
	"val": func(c Client) []int { return c.Val }, "test": func(c Client) []int { return c.Test },
	"pool": func(c Client) []int { return slices.Concat(c.Train, c.Val, c.Test) }}

// TestAllKinds: every kind, by our own rules and by those of the public code, either fails with one line or returns
// valid ascending indices, none twice for one client, and training and test examples for each client; equal seeds give
// equal partitions. Unless the kind says otherwise, each example goes to exactly one client.
func TestAllKinds(t *testing.T) {
	partial := map[string]bool{"iid-shots": true, "sample": true, "lds": true}
	loses := map[string]bool{"labeluni": true, "pachinko": true} // by the rules of the public code
	done := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(Kinds()).Draw(t, "kind")
		s := coarse(toy(rapid.IntRange(1, 12).Draw(t, "classes"), rapid.IntRange(1, 3).Draw(t, "domains"),
			rapid.IntRange(1, 12).Draw(t, "train"), rapid.IntRange(0, 2).Draw(t, "val"), rapid.IntRange(1, 6).Draw(t,
				"test")), 3)
		p := Defaults()
		p.Kind, p.Clients, p.Code = k.Name, rapid.IntRange(1, 15).Draw(t, "clients"), rapid.Bool().Draw(t, "code")
		p.Beta = rapid.SampledFrom([]float64{1e-9, 0.1, 0.5, 5, 1000}).Draw(t, "beta")
		p.MinSize, p.Fill, p.Classes = rapid.IntRange(0, 3).Draw(t, "min"), rapid.Bool().Draw(t, "fill"),
			rapid.IntRange(1, 4).Draw(t, "own")
		p.Repeat, p.Share = rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "repeat"), rapid.Float64Range(0.05,
			1).Draw(t, "share")
		p.Seed = rapid.SampledFrom([]uint64{0, 5}).Draw(t, "seed")
		shots, seed := rapid.IntRange(0, 3).Draw(t, "shots"), rapid.Uint64Range(0, math.MaxUint32).Draw(t, "experiment")
		if rapid.Bool().Draw(t, "pooled") {
			s.MergeSplits(true)
		}
		clients, err := Split(p, s, shots, seed)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "partition") {
				t.Fatalf("error %q", err)
			}
			return
		}
		done[fmt.Sprint(k.Name, p.Code)]++
		if len(clients) != p.Clients {
			t.Fatalf("%d clients", len(clients))
		}
		for _, sp := range s.Splits() {
			list := lists[sp.Name]
			for i, c := range clients {
				for _, l := range [][]int{c.Train, c.Val, c.Test} {
					if !slices.IsSorted(l) {
						t.Fatalf("client %d has %v", i, l)
					}
				}
				own := slices.Sorted(slices.Values(list(c)))
				if len(slices.Compact(slices.Clone(own))) != len(own) || len(own) > 0 && (own[0] < 0 ||
					own[len(own)-1] >= len(*sp.Examples)) {
					t.Fatalf("client %d holds %v of %d", i, own, len(*sp.Examples))
				}
			}
			got := held(clients, list)
			once := shots == 0 && !partial[k.Name] && !(p.Code && (loses[k.Name] || p.Repeat > 0 &&
				k.Name == "pathological"))
			if once && !slices.Equal(got, tensor.Indices(len(*sp.Examples))) {
				t.Fatalf("%s: indices %v of %d", sp.Name, got, len(*sp.Examples))
			}
		}
		for i, c := range clients {
			if len(c.Train) == 0 || len(c.Test) == 0 {
				t.Fatalf("client %d has %d and %d", i, len(c.Train), len(c.Test))
			}
		}
		again, err := Split(p, s, shots, seed)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(clients) {
			t.Fatalf("the same seed gave another partition (%v)", err)
		}
	})
	t.Log(done)
}

// TestLabelKinds: each client holds its number of classes, the same in train and test. The owners of a class share it
// evenly (classes) or by weights between 0.4 and 0.6 (labeluni), so except for rounding the largest part is at most 1.5
// times the smallest.
func TestLabelKinds(t *testing.T) {
	s := toy(10, 0, 120, 0, 60)
	for _, kind := range []string{"classes", "labeluni"} {
		parts := make([][]int, 10)
		for i, c := range split(t, Config{Kind: kind, Clients: 9, Classes: 3}, s, 4) {
			train, _, test := c.Of(s)
			a, b := s.Counts(train), s.Counts(test)
			own := 0
			for k := range a {
				if a[k] > 0 {
					own++
					parts[k] = append(parts[k], a[k])
				}
				if d := a[k] - 2*b[k]; d < -3 || d > 3 {
					t.Errorf("%s: client %d class %d: %d train, %d test", kind, i, k, a[k], b[k])
				}
			}
			if own != 3 {
				t.Errorf("%s: client %d holds %d classes", kind, i, own)
			}
		}
		for k, p := range parts { // 27 places among 10 classes
			if len(p) != 2 && len(p) != 3 {
				t.Errorf("%s: class %d has %d owners", kind, k, len(p))
			}
			if low, high := slices.Min(p), slices.Max(p); kind == "classes" && high-low > 1 ||
				float64(high) > 1.5*float64(low)+3 {
				t.Errorf("%s: class %d is cut into %v", kind, k, p)
			}
		}
	}
}

// TestOwners, by hand: nine clients with three classes each take 27 places of ten classes. The first seven classes of a
// random order, which is drawn first, have three owners, and the other three have two.
func TestOwners(t *testing.T) {
	for seed := range uint64(20) {
		got := owners(9, 3, 10, data.NewRand(seed, "owned"))
		for i, k := range data.NewRand(seed, "owned").Perm(10) {
			want := 3
			if i >= 7 {
				want = 2
			}
			if own := slices.Compact(slices.Clone(got[k])); len(own) != want || len(got[k]) != want {
				t.Errorf("seed %d: class %d, place %d of the order, has the owners %v", seed, k, i, got[k])
			}
		}
	}
}

// TestRepeat: of 10 classes, int(0.25*10) = 2 are split among all 4 clients; each client has 2 of the other 8.
func TestRepeat(t *testing.T) {
	s := toy(10, 0, 8, 0, 4)
	common := 0
	holders := make([]int, 10)
	for _, c := range split(t, Config{Kind: "pathological", Clients: 4, Repeat: 0.25}, s, 1) {
		train, _, test := c.Of(s)
		if len(train) != 2*8+2*2 || len(test) != 2*4+2*1 {
			t.Errorf("%d and %d examples", len(train), len(test))
		}
		for k, n := range s.Counts(train) {
			if n > 0 {
				holders[k]++
			}
		}
	}
	for _, n := range holders {
		if n == 4 {
			common++
		} else if n != 1 {
			t.Errorf("classes have %v holders", holders)
		}
	}
	if common != 2 {
		t.Errorf("classes have %v holders", holders)
	}
}

// TestPachinko: all clients draw the same number, and the first ones one more: of 1199 examples, nine clients draw 120
// and the last one draws 119. A client holds few superclasses with a small beta and nearly all with
// a large one.
func TestPachinko(t *testing.T) {
	s := toy(20, 0, 50, 0, 10)
	s.Train = s.Train[1:]
	for i := range 5 {
		s.Superclasses = append(s.Superclasses, fmt.Sprint(i))
	}
	for k := range s.Classes {
		s.Coarse = append(s.Coarse, k%5)
	}
	held := map[float64]int{}
	for _, beta := range []float64{0.01, 1000} {
		for i, c := range split(t, Config{Kind: "pachinko", Clients: 10, Beta: beta, FineBeta: 10}, s, 1) {
			train, _, test := c.Of(s)
			if len(train)+len(test) != 120-i/9 {
				t.Errorf("%d examples", len(train)+len(test))
			}
			seen := map[int]bool{}
			for _, e := range append(train, test...) {
				seen[s.Coarse[e.Label]] = true
			}
			held[beta] += len(seen)
		}
	}
	few := toy(2, 2, 2, 0, 1) // twelve examples, of which six are in the domain that is left out
	few.Superclasses, few.Coarse = []string{"a"}, []int{0, 0}
	_, err := Split(Config{Kind: "pachinko", Clients: 9, Beta: 1, FineBeta: 1, LeaveOut: few.Domains[:1]}, few, 0, 1)
	goldentest.WantError(t, err, "partition pachinko", "example")
	// 10 clients and 5 superclasses: at beta 0.01 nearly each client holds one, or two if the first has no examples
	// left
	if held[0.01] > 25 || held[1000] != 50 {
		t.Errorf("superclasses held: %v", held)
	}
}

// TestLDS: the clients' shares of a class sum to at most 1 over all domains, the same in train and test.
func TestLDS(t *testing.T) {
	s := toy(6, 4, 100, 0, 50)
	total := make([]float64, 6)
	for _, c := range split(t, Config{Kind: "lds", Clients: 8, Beta: 0.5}, s, 3) {
		train, _, test := c.Of(s)
		a, b := s.Counts(train), s.Counts(test)
		for k := range a {
			total[k] += float64(a[k]) / 100
			if d := a[k] - 2*b[k]; d < -1 || d > 2 {
				t.Errorf("class %d: %d train, %d test", k, a[k], b[k])
			}
		}
		for _, e := range append(train, test...) {
			if s.Domains[e.Domain] != c.Domain {
				t.Fatalf("a client of %s holds %v", c.Domain, e)
			}
		}
	}
	for k, x := range total { // 8 clients lose less than one example each to rounding
		if x > 1 || x < 1-0.08 {
			t.Errorf("shares of class %d sum to %g", k, x)
		}
	}
}

// TestSample: sizes are the share of each list; with a large beta, class proportions are those of the set.
func TestSample(t *testing.T) {
	s := toy(5, 0, 100, 0, 40)
	for _, c := range split(t, Config{Kind: "sample", Clients: 30, Share: 0.1, Beta: 1e6}, s, 3) {
		train, _, test := c.Of(s)
		if len(test) != 20 {
			t.Errorf("%d test examples", len(test))
		}
		for k, n := range s.Counts(train) {
			if n < 9 || n > 11 {
				t.Errorf("%d of class %d", n, k)
			}
		}
	}
}

// TestQuotas by hand.
func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		q    []float64
		have []int
		size int
		want []int
	}{
		{[]float64{0.5, 0.3, 0.2}, []int{10, 10, 10}, 10, []int{5, 3, 2}},
		// the first two classes are full, the rest goes to the third
		{[]float64{0.9, 0.1, 0}, []int{4, 2, 9}, 10, []int{4, 2, 4}},
		{[]float64{1, 0}, []int{2, 2}, 9, []int{2, 2}},
		{[]float64{0.34, 0.66}, []int{5, 5}, 1, []int{0, 1}}, // the largest remainder
		// 2.1 and 0.9 of three: the third goes to the larger fraction, 0.9, also beside a class without examples
		{[]float64{0.7, 0.3, 0}, []int{9, 9, 0}, 3, []int{2, 1, 0}},
		// 5.125, 20.5 and 15.375, of which the second class has only one; 5+1+15 leave 20, shared by the others as 1:3
		{[]float64{0.125, 0.5, 0.375}, []int{90, 1, 90}, 41, []int{10, 1, 30}},
		{[]float64{1}, []int{3}, 0, []int{0}},
	} {
		if got := quotas(c.q, c.have, c.size); !slices.Equal(got, c.want) {
			t.Errorf("quotas(%v, %v, %d) = %v, want %v", c.q, c.have, c.size, got, c.want)
		}
	}
}

// TestFill: beta is so small that each class goes to a single client, and there are more clients than classes.
func TestFill(t *testing.T) {
	s := toy(4, 0, 60, 0, 30)
	for i, c := range split(t, Config{Kind: "dirichlet", Clients: 20, Beta: 1e-6, MinSize: 3, Fill: true}, s, 1) {
		train, _, test := c.Of(s)
		if len(train) < 3 || len(test) < 3 {
			t.Errorf("client %d has %d and %d", i, len(train), len(test))
		}
		a, b := s.Counts(train), s.Counts(test)
		for k := range a {
			if b[k] > 0 && a[k] == 0 {
				t.Errorf("client %d is tested on class %d, which it does not train on", i, k)
			}
		}
	}
}

// TestManyClients: 60,000 examples are split among 1,000 clients, and a Dirichlet of 0.05 over 500 clients ends after
// 200 draws, also by the rules of the public code. Bytes stand for the work: a table of all examples and clients has
// 480 MB.
func TestManyClients(t *testing.T) {
	s := toy(10, 0, 5000, 0, 1000)
	for _, c := range []struct {
		kind    string
		clients int
		beta    float64
		code    bool
		limit   uint64 // MB; several times what is needed
	}{{"iid", 1000, 0, false, 100}, {"dirichlet", 1000, 0.5, false, 200}, {"dirichlet", 1000, 0.5, true, 100},
		{"dirichlet", 500, 0.05, false, 1000}, {"dirichlet", 500, 0.05, true, 1000}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Split(Config{Kind: c.kind, Clients: c.clients, Beta: c.beta, MinSize: 2, Code: c.code}, s, 0, 1)
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > c.limit*1e6 {
			t.Errorf("%+v took %d bytes", c, bytes)
		}
		if c.beta == 0.05 {
			goldentest.WantError(t, err, "200 draws", "500 clients", "raise partition.beta")
		} else if err != nil {
			t.Error(err)
		}
	}
	if clients := split(t, Config{Kind: "dirichlet", Clients: 500, Beta: 0.05, MinSize: 2, Fill: true}, s,
		1); len(clients) != 500 {
		t.Errorf("%d clients", len(clients))
	}
}

func TestMoreErrors(t *testing.T) {
	plain, inDomains, unnamed := toy(6, 0, 8, 0, 4), toy(6, 3, 8, 0, 4), toy(6, 0, 8, 0, 4)
	unnamed.Coarse = make([]int, 6) // each class is of superclass 0, and there are no superclasses
	for _, c := range []struct {
		p     Config
		s     *data.Set
		shots int
		seed  uint64
		words []string
	}{
		{Config{Kind: "labeluni", Clients: 3}, plain, 0, 1, []string{"partition.classes", "1 to 6"}},
		{Config{Kind: "classes", Clients: 2, Classes: 2}, plain, 0, 1, []string{"without a client",
			"raise partition.classes"}},
		{Config{Kind: "labeluni", Clients: 5, Classes: 2, Code: true}, plain, 0, 1, []string{"5*2", "multiple",
			"6 classes"}},
		{Config{Kind: "classes", Clients: 5, Classes: 1, Code: true}, plain, 0, 1, []string{"class5",
			"raise partition.clients to 6"}},
		{Config{Kind: "pachinko", Clients: 2, Beta: 1, FineBeta: 10}, plain, 0, 1, []string{"superclasses",
			"CIFAR-100"}},
		{Config{Kind: "pachinko", Clients: 2, Beta: 1}, plain, 0, 1, []string{"partition.fine_beta"}},
		{Config{Kind: "pachinko", Clients: 2, Beta: 1, FineBeta: 10}, unnamed, 0, 1, []string{"class0", "0 of 0"}},
		{Config{Kind: "pathological", Clients: 2, Repeat: 1}, plain, 0, 1, []string{"partition.repeat"}},
		{Config{Kind: "pathological", Clients: 2, Repeat: 0.5, Code: true}, plain, 0, 1,
			[]string{"divides by data.shots"}},
		{Config{Kind: "pathological", Clients: 2, Repeat: 0.5, Code: true}, plain, 10, 1,
			[]string{"8 training examples", "10 are drawn", "lower data.shots"}},
		{Config{Kind: "sample", Clients: 2, Beta: 1, Share: 0}, plain, 0, 1, []string{"partition.share"}},
		{Config{Kind: "sample", Clients: 2, Beta: 1, Share: 0.5, Code: true}, plain, 0, 1, []string{"partition.code",
			"sample"}},
		{Config{Kind: "iid-shots", Clients: 2}, plain, 0, 1, []string{"set data.shots"}},
		{Config{Kind: "lds", Clients: 2, Beta: 1}, plain, 0, 1, []string{"needs a set with domains"}},
		{Config{Kind: "lds", Clients: 2, Beta: 1, Code: true}, inDomains, 0, 1, []string{"one client per domain",
			"partition.clients to 3"}},
		{Config{Kind: "lds", Clients: 3, Beta: 1e-9, Code: true}, inDomains, 0, 1, []string{"1e-09", "underflowed"}},
		{Config{Kind: "iid", Clients: 2, Code: true}, plain, 0, 1 << 32, []string{"4294967295", "partition.seed"}},
		{Config{Kind: "iid", Clients: 2, LeaveOut: []string{"domain1"}}, plain, 0, 1, []string{"partition.leave_out",
			"no domains"}},
		{Config{Kind: "domain", Clients: 2, LeaveOut: []string{"nowhere"}}, inDomains, 0, 1,
			[]string{"partition.leave_out", "nowhere", "domain0, domain1, domain2"}},
		{Config{Kind: "domain", Clients: 2, LeaveOut: inDomains.Domains}, inDomains, 0, 1,
			[]string{"no domain is left"}},
	} {
		_, err := Split(c.p, c.s, c.shots, c.seed)
		goldentest.WantError(t, err, c.words...)
	}
}
