package partition

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/pyrand"
	"promptfed/runtime/convert"
)

// Client holds the examples of one client: indices into the lists of the set, ascending. With split "pooled" all three
// index Set.Pool.
type Client struct {
	Train  []int  `json:"train"`
	Val    []int  `json:"val"`
	Test   []int  `json:"test"`
	Domain string `json:"domain"` // for kinds with domains, otherwise ""
}

// In returns the client's indices in a split of the set: train, val or test.
func (c *Client) In(split string) *[]int {
	switch split {
	case "train":
		return &c.Train
	case "val":
		return &c.Val
	}
	return &c.Test
}

// Of returns the client's examples of s.
func (c Client) Of(s *data.Set) (train, val, test []data.Example) {
	return data.Pick(s.PoolOr(s.Train), c.Train), data.Pick(s.PoolOr(s.Val), c.Val), data.Pick(s.PoolOr(s.Test), c.Test)
}

// cutPool splits the client's part of the pool into 60 % train, 20 % val and 20 % test (FedAPPR), in random order.
func (c *Client) cutPool(index []int, rng *rand.Rand) {
	index = slices.Clone(index)
	shuffle(index, rng)
	a, b := len(index)*6/10, len(index)*8/10
	c.Train, c.Val, c.Test = index[:a:a], index[a:b:b], index[b:]
	sorted([]shares{{c.Train, c.Val, c.Test}})
}

// list is a part of one split: indices into the split, and the label of every index of the split.
type list struct{ index, label []int }

// byClass groups the indices of a list by class and keeps their order.
func (l list) byClass(classes int) [][]int {
	out := make([][]int, classes)
	for _, i := range l.index {
		out[l.label[i]] = append(out[l.label[i]], i)
	}
	return out
}

// byClass groups the indices of every list by class.
func (j *job) byClass() [][][]int {
	return convert.Slice(j.lists, func(l list) [][]int { return l.byClass(len(j.set.Classes)) })
}

// job is one partition to compute: the configuration, and the set without the domains that are left out.
type job struct {
	Config
	set   *data.Set
	seed  uint64
	shots int

	codeSeed uint64        // of public code, with partition.code
	numpy    *pyrand.NumPy // likewise; nil for kinds that draw from Python's generator only
	domains  []int         // that clients may hold
	lists    []list        // of the splits of the set: train, val if it exists, and test; or pool
}

func newJob(p Config, s *data.Set, shots int, seed uint64) *job {
	if p.Seed != 0 {
		seed = p.Seed
	}

	job := &job{Config: p, set: s, seed: seed, shots: shots, domains: p.keptDomains(s)}
	for _, sp := range s.Splits() {
		l := list{label: data.Labels(*sp.Examples)}
		for i, e := range *sp.Examples {
			if len(p.LeaveOut) == 0 || slices.Contains(job.domains, e.Domain) {
				l.index = append(l.index, i)
			}
		}
		job.lists = append(job.lists, l)
	}

	return job
}

// kindSeed returns the seed of the kind for the set or for one of its domains.
func (j *job) kindSeed(domain int) uint64 {
	return data.NewRand(j.seed, "partition/"+j.Kind, domain).Uint64()
}

// inDomain returns the job for the part of the lists that lies in one domain, and for some clients.
func (j *job) inDomain(domain, clients int) *job {
	out := *j
	out.Clients, out.lists = clients, slices.Clone(j.lists)
	for i, sp := range j.set.Splits() {
		out.lists[i].index = slices.DeleteFunc(slices.Clone(j.lists[i].index), func(k int) bool {
			return (*sp.Examples)[k].Domain != domain
		})
	}

	return &out
}

// newClients makes clients of shares of the set's lists, and cuts a pool. The clients have the given domain, or "";
// before is the number of clients that precede them.
func (j *job) newClients(got []shares, domain string, before int) []Client {
	var out []Client
	for n, g := range sorted(got) {
		c := Client{Domain: domain}
		for i, sp := range j.set.Splits() {
			if sp.Name == "pool" {
				c.cutPool(g[i], data.NewRand(j.seed, "partition/pool", before+n))
			} else {
				*c.In(sp.Name) = g[i]
			}
		}
		out = append(out, c)
	}

	return out
}

// clientsPerDomain returns the number of clients of every domain that is not left out: an equal number, and one more in
// each domain that extra draws, one call a remaining client.
func (j *job) clientsPerDomain(extra func() int) ([]int, error) {
	n := len(j.domains)
	if j.Clients < n {
		return nil, fmt.Errorf("%d clients for %d domains: raise partition.clients to at least %d", j.Clients, n, n)
	}

	count := slices.Repeat([]int{j.Clients / n}, n)
	for range j.Clients % n {
		count[extra()]++
	}

	return count, nil
}

// distinctDomains draws a different domain in each call.
func (j *job) distinctDomains() func() int {
	order := data.NewRand(j.seed, "partition/remainder").Perm(len(j.domains))
	return func() int {
		d := order[0]
		order = order[1:]
		return d
	}
}

// checkShots refuses kinds in which every client draws its own few examples, if they have nothing to draw from.
func (j *job) checkShots() error {
	n := len(j.lists[0].index)
	return cmp.Or(
		data.Need(j.shots >= 1, "every client draws its own few examples: set data.shots, or partition.kind: iid"),
		data.Need(j.set.Pool == nil, "a pooled set has no training list to draw from: set data.split to given"),
		data.Need(n <= maxOverlap/j.Clients, "%d clients drawing from %d examples each need too much memory: lower "+
			"partition.clients", j.Clients, n))
}

// shares are the indices of one client in every list.
type shares [][]int

func (j *job) newShares() []shares {
	out := make([]shares, j.Clients)
	for i := range out {
		out[i] = make(shares, len(j.lists))
	}
	return out
}

func shuffle(index []int, rng *rand.Rand) {
	rng.Shuffle(len(index), func(i, j int) { index[i], index[j] = index[j], index[i] })
}

// perClient is Python's round(classes/clients).
func perClient(classes, clients int) int {
	return int(math.RoundToEven(float64(classes) / float64(clients)))
}

func sorted(out []shares) []shares {
	for _, s := range out {
		for _, l := range s {
			slices.Sort(l)
		}
	}
	return out
}

// maxTries returns how often a Dirichlet partition is drawn at most: 200 times, or fewer if one draw is large, so that
// all draws together take seconds.
func maxTries(clients, classes int) int {
	const draws = 10_000_000
	return min(200, max(10, draws/max(1, clients*classes)))
}

// maxOverlap limits the number of indices of kinds whose clients overlap.
const maxOverlap = 100_000_000

// assignParts assigns consecutive parts of the indices of list l to clients; part i ends at ends[i] and belongs to
// client owners[i], or to client i if owners is nil.
func assignParts(out []shares, l int, owners, index, ends []int) {
	start := 0
	for i, end := range ends {
		c := i
		if owners != nil {
			c = owners[i]
		}
		out[c][l] = append(out[c][l], index[start:end]...)
		start = end
	}
}

// allHave reports whether all clients have size examples of the first and of the last list.
func allHave(out []shares, size int) bool {
	return !slices.ContainsFunc(out, func(s shares) bool { return len(s[0]) < size || len(s[len(s)-1]) < size })
}

// rounding added to an end makes 10 of 0.1+0.2+0.7 of 10, which is 9 without it.
const rounding = 1e-9

// partEnds returns the ends of the clients' parts of a list of n: int(cumulated share * n), and n for the last one;
// with slack 0 they are numpy's (cumsum(share) * n).astype(int). If no share is a number, because the draw underflowed
// or all shares were set to 0, the last client gets everything.
func partEnds(share []float64, n int, slack float64) []int {
	out := make([]int, len(share))
	sum := 0.0
	for i, x := range share {
		sum += x
		if !math.IsNaN(sum) {
			out[i] = min(n, int(sum*float64(n)+slack))
		}
	}

	out[len(out)-1] = n
	return out
}

// total adds up in order, so that a sum has the same bits everywhere.
func total[T int | float64](x []T) (sum T) {
	for _, v := range x {
		sum += v
	}
	return sum
}

// divide divides all elements by one number.
func divide(x []float64, by float64) {
	for i := range x {
		x[i] /= by
	}
}
