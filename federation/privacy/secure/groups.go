package secure

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/federation/engine/message"
)

// invalidSums records rounds with invalid sums: sums that no valid vectors have. An invalid sum does not show which
// client caused it. In the following rounds, clients are split at random into groups with one sum each; groups with an
// invalid sum are left out and the others count. Rounds are counted from 1.
type invalidSums struct {
	First    int   `json:"first"`    // first round with an invalid sum; 0 for none
	Last     int   `json:"last"`     // newest round with an invalid sum
	Suspects []int `json:"suspects"` // clients without a valid sum since First
}

// quietRounds is how many rounds in groups must have only valid sums before a round has one sum again.
const quietRounds = 5

// grouped reports whether a round, counted from 0, has groups.
func (v invalidSums) grouped(round int) bool {
	return v.First > 0 && round+1 > v.First && round+1 <= v.Last+quietRounds
}

// note records a round, once or several times. valid are the clients of groups with a valid sum. It returns a warning
// if at most half of the clients are suspects.
func (v *invalidSums) note(instruction message.Instruction, valid []int, invalid bool) string {
	switch grouped := v.grouped(instruction.Round); {
	case !grouped && invalid:
		*v = invalidSums{First: instruction.Round + 1, Last: instruction.Round + 1, Suspects: instruction.Clients}
		return ""
	case !grouped:
		*v = invalidSums{}
		return ""
	}

	v.Suspects = slices.DeleteFunc(slices.Clone(v.Suspects), func(id int) bool { return slices.Contains(valid, id) })
	if !invalid {
		return ""
	}

	v.Last = instruction.Round + 1
	if n := len(v.Suspects); n == 0 || 2*n > len(instruction.Clients) {
		return ""
	}

	return fmt.Sprintf("secure aggregation: clients %v were in no valid sum in %d rounds of groups; check them, and "+
		"revoke the certificate of a client that lies", v.Suspects, v.Last-v.First)
}

// groups returns the clients of each session of a round, drawn anew in each round.
func (r *round) groups() [][]int {
	clients, n := slices.Clone(r.order.Clients), 1
	if r.saved.Invalid.grouped(r.order.Round) {
		n = max(1, len(clients)/r.aggregation.groupSize())
	}

	if n > 1 {
		seed := sha256.Sum256(fmt.Appendf(nil, "%x groups %d", r.side.context(), r.order.Round))
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

// groupSize returns the minimum number of clients of a group. It allows the same share of dropouts as a whole round.
func (l *Aggregation) groupSize() int {
	return max(l.config.Least, int(math.Ceil(float64(l.config.Least)/l.config.Threshold-1e-9)))
}

// groupThreshold returns the minimum number of clients in the sum of a group of so many.
func (l *Aggregation) groupThreshold(clients int) int {
	return max(l.config.Least, l.thresholdOf(clients))
}
