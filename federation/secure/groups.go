package secure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"crypto/sha256"
)

// trouble is what is known of impossible sums, which say nothing of who spoiled them. For the rounds after one, clients
// are split at random into groups, each with a sum of its own: a group with a liar is left out, the others count.
type trouble struct {
	Left   int   `json:"left"`   // rounds in groups, until one has an impossible sum
	Rounds int   `json:"rounds"` // in groups
	Never  []int `json:"never"`  // clients that have been in no possible sum since
}

// calm is how many rounds in groups without an impossible sum end the groups.
const calm = 5

// note takes a round into account. It gives a line where few clients are left that could be the liars.
func (t *trouble) note(sessions []*session, valid map[*session]bool, impossible bool) string {
	switch {
	case t.Left == 0 && !impossible:
		return ""
	case t.Left == 0:
		*t = trouble{Left: calm}
		for _, s := range sessions {
			t.Never = append(t.Never, s.clients...)
		}
		slices.Sort(t.Never)
		return ""
	}
	t.Rounds++
	all := 0
	for _, s := range sessions {
		if all += len(s.clients); valid[s] {
			t.Never = slices.DeleteFunc(t.Never, func(id int) bool { return slices.Contains(s.clients, id) })
		}
	}
	if t.Left--; impossible {
		t.Left = calm
	}
	if t.Left == 0 {
		*t = trouble{}
		return ""
	}
	if n := len(t.Never); !impossible || n == 0 || 2*n > all {
		return ""
	}
	return fmt.Sprintf("secure aggregation: clients %v were in no possible sum in %d rounds of groups; look at them, "+
		"and revoke a certificate if one lies", t.Never, t.Rounds)
}

// groups are the clients of the sessions of a round, drawn anew each round.
func (r *round) groups() [][]int {
	clients := slices.Clone(r.order.Clients)
	n := 1
	if r.saved.Trouble.Left > 0 {
		n = max(1, len(clients)/r.l.groupSize())
	}
	if n > 1 {
		context := r.p.context()
		seed := sha256.Sum256(fmt.Appendf(nil, "%x groups %d", context, r.order.Round))
		rand.New(rand.NewChaCha8(seed)).Shuffle(len(clients), func(i, j int) {
			clients[i], clients[j] = clients[j], clients[i]
		})
	}
	var out [][]int
	for i := range n {
		out = append(out, slices.Sorted(slices.Values(clients[i*len(clients)/n:(i+1)*len(clients)/n])))
	}
	return out
}

// groupSize is the least number of clients of a group: with it the threshold leaves room for the same share of dropouts
// as in a whole round.
func (l *Layer) groupSize() int {
	return max(l.c.Least, int(math.Ceil(float64(l.c.Least)/l.c.Threshold-1e-9)))
}

// groupThreshold is how many clients the sum of a group of so many must hold.
func (l *Layer) groupThreshold(clients int) int { return max(l.c.Least, l.thresholdOf(clients)) }
