package partition

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"promptfed/federation/data"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// toy returns a set without images: train and test examples per class and domain, in mixed order (class fastest).
func toy(classes, domains, train, val, test int) *data.Set {
	s := &data.Set{Name: "toy"}
	for k := range classes {
		s.Classes = append(s.Classes, fmt.Sprint("class", k))
	}
	for d := range domains {
		s.Domains = append(s.Domains, fmt.Sprint("domain", d))
	}
	for _, l := range []struct {
		to *[]data.Example
		n  int
	}{{&s.Train, train}, {&s.Val, val}, {&s.Test, test}} {
		for d := range max(1, domains) {
			for i := range l.n {
				for k := range classes {
					*l.to = append(*l.to, data.Example{ID: fmt.Sprint(d, i, k), Label: k, Domain: d})
				}
			}
		}
	}
	return s
}

func held(clients []Client, build func(Client) []int) []int {
	var out []int
	for _, c := range clients {
		out = append(out, build(c)...)
	}
	slices.Sort(out)
	return out
}

// TestSummary, by hand: of 8 training examples, clients hold 1 (class 0) and 3 (2 of class 0, 1 of class 1), all
// together 3/4 and 1/4. Distances are |1-3/4| = 1/4 and |1/3-1/4| = 1/12, 1/6 in the mean. The Gini coefficient of 1
// and 3 is 2(1+6)/(2*4) - 3/2 = 1/4. Index 2 is held twice; nobody holds training examples 1 and 4 to 7 and test
// examples 1 to 3.
func TestSummary(t *testing.T) {
	s := toy(2, 0, 4, 0, 2)
	got := Summarise(s, []Client{{Train: []int{2}, Test: []int{0}}, {Train: []int{0, 2, 3}}})
	want := Summary{Clients: 2, Train: Range{1, 2, 3}, Test: Range{0, 0.5, 1}, Classes: Range{1, 1.5, 2}, Skew: 1. / 6,
		Gini:   0.25,
		Unused: 5 + 3, Repeated: 1}
	if math.Abs(got.Skew-want.Skew) > 1e-12 {
		t.Errorf("skew %v", got.Skew)
	}
	if got.Skew = want.Skew; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Summarise(s, nil); got != (Summary{}) {
		t.Errorf("of no clients: %+v", got)
	}
}

// TestEveryExampleOnce: for all kinds and numbers, a partition either fails with one line or assigns every index to
// exactly one client, with training and test examples for each client; equal seeds give equal partitions.
func TestEveryExampleOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := []string{"iid", "pathological", "dirichlet", "domain", "domain-dirichlet"}
		s := toy(rapid.IntRange(1, 12).Draw(t, "classes"), rapid.IntRange(0, 3).Draw(t, "domains"),
			rapid.IntRange(1, 12).Draw(t, "train"), rapid.IntRange(0, 2).Draw(t, "val"), rapid.IntRange(1, 6).Draw(t,
				"test"))
		p := Config{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Clients: rapid.IntRange(1, 15).Draw(t, "clients"),
			Beta:    rapid.SampledFrom([]float64{1e-9, 0.01, 0.1, 0.5, 5, 1000}).Draw(t, "beta"),
			MinSize: rapid.IntRange(0, 4).Draw(t, "min"),
			Uncap:   rapid.Bool().Draw(t, "uncap")}
		seed := rapid.Uint64().Draw(t, "seed")
		pooled := rapid.Bool().Draw(t, "pooled")
		if pooled {
			s.MergeSplits(true)
		}
		clients, err := Split(p, s, 0, seed)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "partition") {
				t.Fatalf("error %q", err)
			}
			return
		}
		if len(clients) != p.Clients {
			t.Fatalf("%d clients", len(clients))
		}
		for name, list := range lists {
			n := map[string]int{"train": len(s.Train), "val": len(s.Val), "test": len(s.Test),
				"pool": len(s.Pool)}[name]
			if got := held(clients, list); pooled == (name == "pool") && !slices.Equal(got, tensor.Indices(n)) {
				t.Fatalf("%s: indices %v of %d", name, got, n)
			}
		}
		for i, c := range clients {
			train, _, test := c.Of(s)
			if len(train) == 0 || len(test) == 0 {
				t.Fatalf("client %d has %d and %d", i, len(train), len(test))
			}
			if strings.HasSuffix(p.Kind, "dirichlet") && !pooled && (len(train) < p.MinSize || len(test) < p.MinSize) {
				t.Fatalf("client %d has %d and %d, min_size is %d", i, len(train), len(test), p.MinSize)
			}
			for _, e := range append(train, test...) {
				if c.Domain != "" && s.Domains[e.Domain] != c.Domain {
					t.Fatalf("client %d of %s holds %v", i, c.Domain, e)
				}
			}
		}
		again, err := Split(p, s, 0, seed)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(clients) {
			t.Fatalf("the same seed gave another partition (%v)", err)
		}
	})
}

func split(t *testing.T, p Config, s *data.Set, seed uint64) []Client {
	t.Helper()
	c, err := Split(p, s, 0, seed)
	goldentest.NoError(t, err)
	return c
}

// TestIIDIsEven: 10 classes of 7 over 4 clients: every class 1 or 2 per client, sizes 17 or 18.
func TestIIDIsEven(t *testing.T) {
	s := toy(10, 0, 7, 0, 4)
	for _, c := range split(t, Config{Kind: "iid", Clients: 4}, s, 1) {
		train, _, test := c.Of(s)
		if n := len(train); n != 17 && n != 18 || len(test) != 10 {
			t.Errorf("sizes %d and %d", n, len(test))
		}
		for _, n := range s.Counts(train) {
			if n < 1 || n > 2 {
				t.Errorf("counts %v", s.Counts(train))
			}
		}
	}
}

// TestPathologicalClassCounts: the numbers of classes per client that METHODS 1.1 reports for the public split with 10
// clients: Caltech101 (100 classes) 10 each; Food101 and Flowers102 the last 11 and 12; DTD (47) 5, the last 2; Pets
// (37) 4, the last 1.
func TestPathologicalClassCounts(t *testing.T) {
	for _, c := range []struct{ classes, each, last int }{{100, 10, 10}, {101, 10, 11}, {102, 10, 12}, {47, 5, 2},
		{37, 4, 1}} {
		s := toy(c.classes, 0, 2, 0, 3)
		for i, client := range split(t, Config{Kind: "pathological", Clients: 10}, s, 3) {
			train, _, test := client.Of(s)
			want := c.each
			if i == 9 {
				want = c.last
			}
			a, b := s.Counts(train), s.Counts(test)
			own := 0
			for k := range a {
				if (a[k] > 0) != (b[k] > 0) || a[k] > 0 && (a[k] != 2 || b[k] != 3) {
					t.Fatalf("client %d class %d: %d train, %d test", i, k, a[k], b[k])
				}
				if a[k] > 0 {
					own++
				}
			}
			if own != want {
				t.Errorf("%d classes: client %d owns %d, want %d", c.classes, i, own, want)
			}
		}
	}
}

// TestCuts by hand: int(0.25*10)=2, int(0.55*10)=5, and the last client gets the rest; a proportion of 0 gets nothing.
func TestCuts(t *testing.T) {
	for _, c := range []struct {
		share []float64
		n     int
		want  []int
	}{{[]float64{0.25, 0.3, 0.45}, 10, []int{2, 5, 10}}, {[]float64{0.1, 0.2, 0.7, 0}, 10, []int{1, 3, 10, 10}},
		{[]float64{1}, 3, []int{3}}, {[]float64{0.5, 0.5}, 0, []int{0, 0}}} {
		if got := partEnds(c.share, c.n, rounding); !slices.Equal(got, c.want) {
			t.Errorf("cuts(%v, %d) = %v, want %v", c.share, c.n, got, c.want)
		}
	}
}

// TestDirichletSameProportions: with 100 training and 50 test examples a class, the cuts of one class differ between
// the lists by less than one test example, that is two training examples, at either end.
func TestDirichletSameProportions(t *testing.T) {
	s := toy(5, 0, 100, 0, 50)
	for _, c := range split(t, Config{Kind: "dirichlet", Clients: 4, Beta: 0.5, MinSize: 2}, s, 9) {
		train, _, test := c.Of(s)
		a, b := s.Counts(train), s.Counts(test)
		for k := range a {
			if d := a[k] - 2*b[k]; d < -3 || d > 3 {
				t.Errorf("class %d: %d train but %d test", k, a[k], b[k])
			}
		}
	}
}

// TestBetaControlsSkew: over many seeds, a large beta spreads a class over nearly all clients and a small one over few;
// with a beta that underflows, every class goes to one client.
func TestBetaControlsSkew(t *testing.T) {
	s := toy(10, 0, 40, 0, 20)
	spread := func(beta float64) float64 {
		owners, n := 0, 0
		for seed := range uint64(10) {
			clients := split(t, Config{Kind: "dirichlet", Clients: 5, Beta: beta, MinSize: 1, Uncap: true}, s, seed)
			for k := range s.Classes {
				for _, c := range clients {
					train, _, _ := c.Of(s)
					if s.Counts(train)[k] > 0 {
						owners++
					}
				}
				n++
			}
		}
		return float64(owners) / float64(n)
	}
	even, skewed, single := spread(1000), spread(0.1), spread(1e-12)
	t.Logf("clients per class: beta 1000 %.2f, 0.1 %.2f, 1e-12 %.2f", even, skewed, single)
	if even != 5 || skewed > 3.5 || skewed < 1 || single != 1 {
		t.Errorf("clients per class: beta 1000 %.2f, 0.1 %.2f, 1e-12 %.2f", even, skewed, single)
	}
}

func TestDomainRemainder(t *testing.T) {
	s := toy(3, 4, 20, 0, 10)
	clients := split(t, Config{Kind: "domain", Clients: 6}, s, 5)
	count := map[string]int{}
	last := ""
	for _, c := range clients {
		count[c.Domain]++
		if c.Domain < last {
			t.Errorf("%s after %s", c.Domain, last)
		}
		last = c.Domain
	}
	if got := slices.Sorted(maps.Values(count)); !slices.Equal(got, []int{1, 1, 2, 2}) {
		t.Errorf("clients per domain %v", count)
	}
}

func TestPooled(t *testing.T) {
	s := toy(4, 0, 10, 0, 5)
	s.MergeSplits(true)
	for _, c := range split(t, Config{Kind: "iid", Clients: 3}, s, 1) {
		if len(c.Train) != 12 || len(c.Val) != 4 || len(c.Test) != 4 {
			t.Errorf("%d, %d, %d of 20", len(c.Train), len(c.Val), len(c.Test))
		}
	}
	// The cut depends on the number of the client, whoever shares the call with it.
	job, pool := newJob(Config{}, s, 0, 1), shares{tensor.Indices(60)}
	together, alone := job.newClients([]shares{pool, pool}, "", 0), job.newClients([]shares{pool}, "", 1)
	if !slices.Equal(together[1].Train, alone[0].Train) || slices.Equal(together[0].Train, alone[0].Train) {
		t.Errorf("client 1 trains on %v, alone on %v", together[1].Train, alone[0].Train)
	}
}

func TestPartitionErrors(t *testing.T) {
	for _, c := range []struct {
		p     Config
		s     *data.Set
		words []string
	}{
		{Config{Kind: "zipf", Clients: 2}, toy(2, 0, 4, 0, 4), []string{"partition.kind", "zipf", "domain-dirichlet"}},
		{Config{Kind: "iid"}, toy(2, 0, 4, 0, 4), []string{"partition.clients"}},
		{Config{Kind: "iid", Clients: 5}, toy(2, 0, 4, 0, 2), []string{"client 4 of 5", "no test example",
			"lower partition.clients"}},
		{Config{Kind: "iid", Clients: 1 << 40}, toy(2, 0, 4, 0, 2), []string{"lower partition.clients"}},
		{Config{Kind: "sample", Clients: 2, Beta: 1, Share: 1e-9}, toy(2, 0, 4, 0, 2),
			[]string{"raise partition.share"}},
		{Config{Kind: "pathological", Clients: 12}, toy(10, 0, 4, 0, 2), []string{"10 classes", "12 clients",
			"10 works"}},
		{Config{Kind: "pathological", Clients: 6}, toy(10, 0, 4, 0, 2), []string{"10 classes", "6 clients", "5 works"}},
		{Config{Kind: "dirichlet", Clients: 3}, toy(3, 0, 9, 0, 9), []string{"partition.beta"}},
		{Config{Kind: "dirichlet", Clients: 20, Beta: 0.001, MinSize: 10}, toy(4, 0, 100, 0, 50),
			[]string{"200 draws", "raise partition.beta"}},
		{Config{Kind: "dirichlet", Clients: 20, Beta: 1, MinSize: 10}, toy(2, 0, 30, 0, 9), []string{"do not fit"}},
		{Config{Kind: "domain", Clients: 3}, toy(3, 0, 9, 0, 9), []string{"no", "domains", "use iid"}},
		{Config{Kind: "domain-dirichlet", Clients: 3, Beta: 1}, toy(3, 4, 9, 0, 9), []string{"4 domains",
			"at least 4"}},
	} {
		_, err := Split(c.p, c.s, 0, 1)
		goldentest.WantError(t, err, c.words...)
	}
}

func TestFewShot(t *testing.T) {
	s := toy(3, 0, 10, 0, 1)
	labels := data.Labels(s.Train)
	index := tensor.Indices(30)[:25] // 9, 8 and 8 examples of the classes
	got := drawShots(index, labels, 4, 1)
	count := make([]int, 3)
	for _, i := range got {
		count[labels[i]]++
	}
	if !slices.Equal(count, []int{4, 4, 4}) || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != 12 {
		t.Errorf("4 shots: %v", got)
	}
	if !slices.Equal(got, drawShots(index, labels, 4, 1)) || slices.Equal(got, drawShots(index, labels, 4, 2)) {
		t.Error("the seed does not decide")
	}
	if !slices.Equal(drawShots(index, labels, 100, 1), index) {
		t.Error("0 or many shots are not all")
	}
	whole, err := Split(Config{Kind: "iid", Clients: 1}, s, 4, 1) // with ten examples of each class
	if err != nil || !slices.Equal(s.Counts(data.Pick(s.Train, whole[0].Train)), []int{4, 4, 4}) {
		t.Errorf("4 shots: %v, %v", whole, err)
	}
}

func TestJSONAndTable(t *testing.T) {
	s := toy(2, 0, 2, 0, 1)
	clients := []Client{{Train: []int{0, 2}, Test: []int{0}}, {Train: []int{1, 3}, Test: []int{1}}}
	text := goldentest.JSON(t, FileOf(s, clients))
	want := `{"clients":[{"train":[0,2],"val":[],"test":[0],"domain":""},` +
		`{"train":[1,3],"val":[],"test":[1],"domain":""}],` +
		`"labels":{"test":[0,1],"train":[0,1,0,1]}}`
	if string(text) != want {
		t.Errorf("%s", text)
	}
	if got := Table(s, clients); got != ""+
		"  client  train  val  test  class0  class1\n"+
		"       0      2    0     1       2       .\n"+
		"       1      2    0     1       .       2\n"+
		"2 clients; min/median/max: train 2/2/2, val 0/0/0, test 1/1/1, classes 1/1/1\n"+
		"label skew 0.50 (0 even, 1 disjoint), Gini of sizes 0.00, 0 examples unused, 0 repeated\n" {
		t.Errorf("\n%s", got)
	}
	s = toy(30, 0, 2, 0, 1)
	if got := Table(s, []Client{{Train: []int{0, 1, 30}, Domain: "here"}}); !strings.Contains(got,
		"class0 2, class1 1") ||
		!strings.Contains(got, "here") {
		t.Errorf("\n%s", got)
	}
	s.MergeSplits(true)
	if f := FileOf(s, nil); len(f.Labels["pool"]) != 90 || len(f.Labels) != 1 {
		t.Errorf("%v", f)
	}
}
