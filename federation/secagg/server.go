package secagg

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

// Server is the server's side of one session. A message that it refuses changes nothing, as if the client had dropped
// out. It is not safe for concurrent use.
type Server struct {
	t        Params
	who      Identity
	peers    Peers
	step     step
	roster   Roster
	known    map[int]map[int][]byte // fingerprints that a client has
	letters  map[int]Envelopes      // by sender
	model    [sha256.Size]byte
	masked   map[int]bool // whose vectors are in sum
	sum      []uint64
	question Question
	signed   Signatures
	answers  map[int]Shares
}

// NewServer starts a session. Of who it only verifies; proofs of clients are added to peers.
func NewServer(t Params, who Identity, peers Peers) (*Server, error) {
	return &Server{t: t, who: who, peers: peers, roster: Roster{}, known: map[int]map[int][]byte{},
			letters: map[int]Envelopes{}, masked: map[int]bool{}, signed: Signatures{}, answers: map[int]Shares{}},
		t.check()
}

// Progress is what a server must remember of a session to go on with it: the steps that are over. Clients answer again
// what it asks again. There is no secret in it.
type Progress struct {
	Terms     Params
	Roster    []byte         // with all proofs; nil while clients advertise
	Letters   map[int][]byte // envelopes by sender; nil while clients share
	Survivors []int          // nil while clients upload
	Sum       []uint64       // of the survivors' masked vectors
}

// Progress is what Resume needs to go on from the step that is under way.
func (s *Server) Progress() Progress {
	p := Progress{Terms: s.t}
	if s.step > advertise {
		p.Roster = s.roster.Encode()
	}
	if s.step > share {
		p.Letters = map[int][]byte{}
		for id, e := range s.letters {
			p.Letters[id] = e.Encode()
		}
	}
	if s.step > mask {
		p.Survivors, p.Sum = s.question.Survivors, s.sum
	}
	return p
}

// Resume goes on with the session of a server that is no more.
func Resume(p Progress, model [sha256.Size]byte, who Identity, peers Peers) (*Server, error) {
	s, err := NewServer(p.Terms, who, peers)
	if err != nil || p.Roster == nil {
		return s, err
	}
	s.model = model
	if s.roster, err = DecodeRoster(p.Roster); err != nil {
		return nil, err
	}
	for id, a := range s.roster {
		s.peers[id] = a.Proof
	}
	if s.step = share; p.Letters == nil {
		return s, nil
	}
	for id, b := range p.Letters {
		if s.letters[id], err = DecodeEnvelopes(b); err != nil {
			return nil, err
		}
	}
	if s.step = mask; p.Survivors == nil {
		return s, nil
	}
	for _, id := range p.Survivors {
		s.masked[id] = true
	}
	s.sum = slices.Clone(p.Sum)
	_, err = s.Unmask()
	return s, err
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

// Joined is the clients whose keys were taken, once that step is over; nil before. Likewise the others.
func (s *Server) Joined() []int { return s.over(advertise, slices.Collect(maps.Keys(s.roster))) }

// Dealt is the clients that sent shares.
func (s *Server) Dealt() []int { return s.over(share, slices.Collect(maps.Keys(s.letters))) }

// Added is the clients whose vectors are in the sum.
func (s *Server) Added() []int { return s.over(mask, slices.Collect(maps.Keys(s.masked))) }

func (s *Server) over(step step, clients []int) []int {
	if s.step <= step {
		return nil
	}
	slices.Sort(clients)
	return clients
}

// Join takes a client's keys, unless other clients would refuse them.
func (s *Server) Join(id int, j Joining) error {
	if s.step != advertise {
		return errOrder
	}
	if _, ok := s.roster[id]; ok || id < 0 || id >= min(maxID, s.t.Clients) {
		return fmt.Errorf("client %d advertised twice, or its number is invalid", id)
	}
	for other, o := range s.roster {
		if j.Envelope == o.Envelope || j.Pair == o.Pair || j.Envelope == o.Pair || j.Pair == o.Envelope {
			return fmt.Errorf("client %d has a key of client %d", id, other)
		}
	}
	proof, err := s.peers.proof(s.who, id, j.Proof)
	if err != nil {
		return err
	}
	if err := s.who.Verify(id, proof, advertised(s.t, id, j.Keys), j.Signature); err != nil {
		return fmt.Errorf("the keys of client %d: %w", id, err)
	}
	s.peers[id] = proof
	s.roster[id], s.known[id] = Advert{j.Keys, j.Signature, proof}, j.Known
	return nil
}

// Roster ends the first step. Proofs that all clients of the roster have are left out.
func (s *Server) Roster() (Roster, error) {
	if s.step == advertise {
		if err := s.enough(advertise, len(s.roster), "advertised keys"); err != nil {
			return nil, err
		}
	}
	out := maps.Clone(s.roster)
	for id, a := range out {
		print := sha256.Sum256(a.Proof)
		all := len(s.known) == len(s.roster)
		for other, known := range s.known {
			all = all && (other == id || bytes.Equal(known[id], print[:fingerprintSize]))
		}
		if all {
			a.Proof = nil
			out[id] = a
		}
	}
	return out, nil
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

// Inboxes ends the second step: what each client that is left got from the others. model is the digest of what clients
// are to make their vectors from.
func (s *Server) Inboxes(model [sha256.Size]byte) (map[int]Envelopes, error) {
	if s.step == share {
		if err := s.enough(share, len(s.letters), "sent shares"); err != nil {
			return nil, err
		}
	}
	s.model = model
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
	if s.step > mask {
		return s.question, nil
	}
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

// Agree takes a client's signature under the question.
func (s *Server) Agree(id int, signature []byte) error {
	if s.step != agreement || !s.masked[id] || s.signed[id] != nil {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}
	if err := s.who.Verify(id, s.roster[id].Proof, agreed(s.view(), s.question), signature); err != nil {
		return fmt.Errorf("client %d signed something else than the server sent: %w", id, err)
	}
	s.signed[id] = signature
	return nil
}

func (s *Server) view() view {
	return viewOf(s.t, s.roster, slices.Sorted(maps.Keys(s.letters)), s.model)
}

// Signatures ends the fourth step: as many as clients need to give their shares.
func (s *Server) Signatures() (Signatures, error) {
	if err := s.enough(agreement, len(s.signed), "agreed on who stayed"); err != nil {
		return nil, err
	}
	out := Signatures{}
	for _, id := range slices.Sorted(maps.Keys(s.signed))[:s.t.Threshold] {
		out[id] = s.signed[id]
	}
	return out, nil
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
			return fmt.Errorf("client %d gave a share of client %d, which sent none", id, of)
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
	j := newReconstruction(slices.Sorted(maps.Keys(s.answers))[:s.t.Threshold])
	for _, id := range s.question.Survivors {
		seed, err := s.recover(j, id)
		if want := s.roster[id].Seed; err == nil && !bytes.Equal(seed.commitment(s.t.Session, id), want[:]) {
			err = errShares
		}
		if err != nil {
			return nil, nil, fmt.Errorf("secure aggregation: the mask of client %d: %w", id, err)
		}
		s.t.Ring.addMask(s.sum, ownMask(seed, s.t.Session, id), true)
	}
	for _, id := range s.question.Dropped {
		if err := s.without(j, id); err != nil {
			return nil, nil, fmt.Errorf("secure aggregation: the masks of client %d, which dropped out: %w", id, err)
		}
	}
	return s.sum, s.question.Survivors, nil
}

var errShares = fmt.Errorf("the shares of its secret do not match; a client sent false or damaged shares, and the " +
	"round gives no sum")

func (s *Server) recover(j reconstruction, id int) (secret, error) {
	return j.secret(func(client int) []byte { return s.answers[client][id] })
}

// without takes off the sum the masks that the survivors share with a client whose vector is not in it.
func (s *Server) without(j reconstruction, id int) error {
	pair, err := s.recover(j, id)
	if err != nil {
		return err
	}
	key, v := pair.private(s.t.Session), s.view()
	if want := s.roster[id].Pair; !bytes.Equal(key.PublicKey().Bytes(), want[:]) {
		return errShares
	}
	for _, other := range s.question.Survivors {
		public := s.roster[other].Pair
		shared, err := agree(key, public[:])
		if err != nil {
			return err
		}
		s.t.Ring.addMask(s.sum, pairMask(shared, s.t.Session, v, id, other), id > other)
	}
	return nil
}
