package spec

import (
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
)

// Plan holds the decisions of the server: the clients that train in each round, and the tests.
type Plan struct {
	Rounds        int
	Clients       int
	Participation float64 // share of clients that train in a round
	Poisson       bool    // clients are drawn independently with probability Participation; maybe none
	TestEvery     int     // rounds between tests; the last round is always tested
	// the evaluation that a round's headline is of: global, personal, or the method's own (also when empty)
	View     string
	Seed     uint64
	Trainers []int // who may train and answer statistics; empty for all
	// who never trains and is tested after some steps of its own only, sorted; none of Trainers
	New       []int
	Attackers []int               // of a simulated attack, sorted, for the records
	Infos     []method.ClientInfo // of each client
}

func (p Plan) Sample(r *rand.Rand) []int {
	may, n := p.TrainingClients(), p.Sampling()
	pick := []int{}
	if n.Poisson {
		for _, id := range may {
			if r.Float64()*float64(n.Clients) < n.Size {
				pick = append(pick, id)
			}
		}
		return pick
	}
	for _, i := range r.Perm(len(may))[:int(n.Size)] {
		pick = append(pick, may[i])
	}
	slices.Sort(pick)
	return pick
}

func (p Plan) Sampling() method.Sampling {
	s := method.Sampling{Clients: len(p.TrainingClients()), Poisson: p.Poisson}
	s.Size = float64(s.Clients)
	if p.Participation > 0 && p.Participation < 1 {
		s.Size *= p.Participation
		if !p.Poisson {
			s.Size = math.Max(1, math.Floor(s.Size+0.5))
		}
	}
	return s
}

func (p Plan) TrainingClients() []int {
	if len(p.Trainers) > 0 {
		return p.Trainers
	}
	return message.Indices(p.Clients)
}

// Participants lists the clients that take part: all but those that never train.
func (p Plan) Participants() []int {
	return slices.DeleteFunc(message.Indices(p.Clients), func(id int) bool { return slices.Contains(p.New, id) })
}
