package secagg

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// Server is the server's side of one session. A message that it refuses changes nothing, as if the client had dropped
// out. It is not safe for concurrent use.
type Server struct {
	t        Terms
	step     step
	roster   Roster
	letters  map[int]Envelopes // by sender
	masked   map[int]bool      // whose vectors are in sum
	sum      []uint64
	question Question
	answers  map[int]Shares
}

// NewServer starts a session.
func NewServer(t Terms) (*Server, error) {
	return &Server{t: t, roster: Roster{}, letters: map[int]Envelopes{}, masked: map[int]bool{},
		answers: map[int]Shares{}}, t.check()
}

// enough moves on to the next step, if so many clients are left.
func (s *Server) enough(from step, have int, what string) error {
	if s.step != from {
		return errOrder
	}
	if have < s.t.Threshold {
		return fmt.Errorf("secure aggregation: %d clients %s; the threshold is %d: the round gives no sum", have, what,
			s.t.Threshold)
	}
	s.step++
	return nil
}

// Join takes a client's keys.
func (s *Server) Join(id int, k Keys) error {
	if s.step != advertise {
		return errOrder
	}
	if _, ok := s.roster[id]; ok || id < 0 || id >= maxID {
		return fmt.Errorf("client %d advertised twice, or has no number that can be", id)
	}
	for other, o := range s.roster {
		if k.Envelope == o.Envelope || k.Pair == o.Pair || k.Envelope == o.Pair || k.Pair == o.Envelope {
			return fmt.Errorf("client %d has a key of client %d", id, other)
		}
	}
	s.roster[id] = k
	return nil
}

// Roster ends the first step.
func (s *Server) Roster() (Roster, error) {
	return s.roster, s.enough(advertise, len(s.roster), "advertised keys")
}

// Deal takes the shares that a client sends the others.
func (s *Server) Deal(id int, e Envelopes) error {
	if _, ok := s.roster[id]; s.step != share || !ok || s.letters[id] != nil {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}
	if _, own := e[id]; own || len(e) != len(s.roster)-1 {
		return fmt.Errorf("client %d sent shares for %d clients; it must be the %d others", id, len(e), len(s.roster)-1)
	}
	for to, b := range e {
		if _, ok := s.roster[to]; !ok || len(b) != envelopeSize {
			return fmt.Errorf("client %d sent %d bytes to client %d; it must be %d bytes to one of the roster", id,
				len(b), to, envelopeSize)
		}
	}
	s.letters[id] = e
	return nil
}

// Inboxes ends the second step: what each client that is left got from the others.
func (s *Server) Inboxes() (map[int]Envelopes, error) {
	if err := s.enough(share, len(s.letters), "sent shares"); err != nil {
		return nil, err
	}
	out := map[int]Envelopes{}
	for to := range s.letters {
		out[to] = Envelopes{}
		for from, e := range s.letters {
			if from != to {
				out[to][from] = e[to]
			}
		}
	}
	return out, nil
}

// Add takes a client's masked vector.
func (s *Server) Add(id int, masked []uint64) error {
	if s.step != mask || s.letters[id] == nil || s.masked[id] {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}
	if len(masked) != s.t.Length {
		return fmt.Errorf("client %d uploaded %d numbers; it must be %d", id, len(masked), s.t.Length)
	}
	if s.sum == nil {
		s.sum = make([]uint64, s.t.Length)
	}
	s.t.Ring.add(s.sum, masked, false)
	s.masked[id] = true
	return nil
}

// Unmask ends the third step: the question to all clients whose vectors arrived.
func (s *Server) Unmask() (Question, error) {
	if err := s.enough(mask, len(s.masked), "uploaded"); err != nil {
		return Question{}, err
	}
	for _, id := range slices.Sorted(maps.Keys(s.letters)) {
		if s.masked[id] {
			s.question.Survivors = append(s.question.Survivors, id)
		} else {
			s.question.Dropped = append(s.question.Dropped, id)
		}
	}
	return s.question, nil
}

// Reveal takes a client's answer to the question.
func (s *Server) Reveal(id int, a Shares) error {
	if s.step != reveal || !s.masked[id] || s.answers[id] != nil {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}
	if len(a) != len(s.letters) {
		return fmt.Errorf("client %d gave %d shares; it must be %d", id, len(a), len(s.letters))
	}
	for of, b := range a {
		if s.letters[of] == nil {
			return fmt.Errorf("client %d gave a share of client %d, who sent none", id, of)
		}
		if _, err := scalar(b); err != nil {
			return fmt.Errorf("client %d: its share of client %d: %w", id, of, err)
		}
	}
	s.answers[id] = a
	return nil
}

// Sum ends the session: the sum of the vectors of the survivors, and who they are.
func (s *Server) Sum() (sum []uint64, survivors []int, err error) {
	if err := s.enough(reveal, len(s.answers), "answered the last question"); err != nil {
		return nil, nil, err
	}
	j := newJoiner(slices.Sorted(maps.Keys(s.answers))[:s.t.Threshold])
	for _, id := range s.question.Survivors {
		seed, err := s.recover(j, id)
		if want := s.roster[id].Seed; err == nil && !bytes.Equal(seed.commitment(s.t.Session, id), want[:]) {
			err = errShares
		}
		if err != nil {
			return nil, nil, fmt.Errorf("secure aggregation: the mask of client %d: %w", id, err)
		}
		s.t.Ring.stretch(s.sum, ownMask(seed, s.t.Session, id), true)
	}
	for _, id := range s.question.Dropped {
		if err := s.without(j, id); err != nil {
			return nil, nil, fmt.Errorf("secure aggregation: the masks of client %d, which dropped out: %w", id, err)
		}
	}
	return s.sum, s.question.Survivors, nil
}

var errShares = fmt.Errorf("the shares of its secret do not fit; a client lied or was damaged, and the round gives " +
	"no sum")

func (s *Server) recover(j joiner, id int) (secret, error) {
	return j.join(func(client int) []byte { return s.answers[client][id] })
}

// without takes off the sum the masks that the survivors share with a client whose vector is not in it.
func (s *Server) without(j joiner, id int) error {
	pair, err := s.recover(j, id)
	if err != nil {
		return err
	}
	key := pair.private(s.t.Session)
	if want := s.roster[id].Pair; !bytes.Equal(key.PublicKey().Bytes(), want[:]) {
		return errShares
	}
	for _, other := range s.question.Survivors {
		public := s.roster[other].Pair
		shared, err := agree(key, public[:])
		if err != nil {
			return err
		}
		s.t.Ring.stretch(s.sum, pairMask(shared, s.t.Session, id, other), id > other)
	}
	return nil
}
