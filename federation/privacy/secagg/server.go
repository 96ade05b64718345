package secagg

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Server is the server's side of one session. A message that it refuses changes nothing, as if the client had dropped
// out. It is not safe for concurrent use.
type Server struct {
	// Strict has Deal test that a dealer's commitments are those of shares of its secrets, which takes two products of
	// a group element for each pair of clients. Without it Sum finds a dealer whose commitments are not, and has no
	// sum.
	Strict    bool
	t         Params
	who       Identity
	peers     Peers
	step      step
	roster    Roster
	known     map[int]map[int][]byte  // fingerprints that a client has
	encrypted map[int]EncryptedShares // by dealer
	degree    *degreeTest             // of the roster; nil until it is needed
	checked   map[int]bool            // clients that looked at what they were dealt
	liars     map[int]error
	senders   []int // dealers whose shares all hold, and who have those of all others
	model     [sha256.Size]byte
	masked    map[int]bool // whose vectors are in sum
	sum       []uint64
	question  Question
	signed    Signatures
	answers   map[int]Shares
}

// NewServer starts a session. Of who it only verifies; proofs of clients are added to peers.
func NewServer(t Params, who Identity, peers Peers) (*Server, error) {
	return &Server{t: t, who: who, peers: peers, roster: Roster{}, known: map[int]map[int][]byte{},
			encrypted: map[int]EncryptedShares{}, checked: map[int]bool{}, liars: map[int]error{},
			masked: map[int]bool{}, signed: Signatures{}, answers: map[int]Shares{}},
		t.check()
}

// Progress is what a server must remember of a session to go on with it: the steps that are over. Clients answer again
// what it asks again. There is no secret in it.
type Progress struct {
	Terms           Params
	Roster          []byte         // with all proofs; nil while clients advertise
	EncryptedShares map[int][]byte // by dealer, later the commitments alone; nil while clients share
	Senders         []int          // nil while clients look at encrypted shares
	Survivors       []int          // nil while clients upload
	Sum             []uint64       // of the survivors' masked vectors
}

// Progress is what Resume needs to go on from the step that is under way.
func (s *Server) Progress() Progress {
	p := Progress{Terms: s.t}
	if s.step > advertise {
		p.Roster = s.roster.Encode()
	}
	if s.step > share {
		p.EncryptedShares = map[int][]byte{}
		for id, e := range s.encrypted {
			p.EncryptedShares[id] = e.Encode()
		}
	}
	if s.step > check {
		p.Senders = s.senders
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
	if s.step = share; p.EncryptedShares == nil {
		return s, nil
	}
	for id, b := range p.EncryptedShares {
		if s.encrypted[id], err = DecodeEncryptedShares(b); err != nil {
			return nil, err
		}
	}
	if s.step = check; p.Senders == nil {
		return s, nil
	}
	if s.step, s.senders = mask, p.Senders; p.Survivors == nil {
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
func (s *Server) Dealt() []int { return s.over(share, slices.Collect(maps.Keys(s.encrypted))) }

// Senders is the clients that may upload.
func (s *Server) Senders() []int { return s.over(check, s.senders) }

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
	for _, key := range [][keySize]byte{j.Envelope, j.Pair, j.Seed} {
		if _, err := decodePoint(key[:]); err != nil {
			return fmt.Errorf("the keys of client %d: %w", id, err)
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
func (s *Server) Deal(id int, l EncryptedShares) error {
	own, ok := s.roster[id]
	if s.step != share || !ok || s.encrypted[id] != nil {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}
	if len(l) != len(s.roster) {
		return fmt.Errorf("client %d sent shares for %d clients; it must be the %d of the roster", id, len(l),
			len(s.roster))
	}
	for to, x := range l {
		if _, ok := s.roster[to]; !ok || (len(x.Sealed) == 0) != (to == id) {
			return fmt.Errorf("client %d sent no shares for each other client of the roster", id)
		}
	}
	if s.Strict {
		if err := s.testDegree(own, l); err != nil {
			return err
		}
	}
	s.encrypted[id] = l
	return nil
}

// testDegree finds that a dealer's commitments are not those of shares of its secrets.
func (s *Server) testDegree(own Advert, l EncryptedShares) error {
	if s.degree == nil {
		test := newDegreeTest(s.t.Threshold, slices.Sorted(maps.Keys(s.roster)))
		s.degree = &test
	}
	for of, secret := range [][keySize]byte{own.Pair, own.Seed} {
		if err := s.degree.check(secret[:], of, l); err != nil {
			return err
		}
	}
	return nil
}

// Inboxes ends the second step: what each client that is left got from the others.
func (s *Server) Inboxes() (map[int]EncryptedShares, error) {
	if s.step == share {
		if err := s.enough(share, len(s.encrypted), "sent shares"); err != nil {
			return nil, err
		}
	}
	out := map[int]EncryptedShares{}
	for to := range s.encrypted {
		out[to] = EncryptedShares{}
		for from, l := range s.encrypted {
			if from != to {
				out[to][from] = l[to]
			}
		}
	}
	return out, nil
}

// Check takes a client's complaints about the encrypted shares to it. Whoever lies is left out: the dealer, or the
// client.
func (s *Server) Check(id int, c Complaints) error {
	if s.step != check || s.encrypted[id] == nil || s.checked[id] {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}
	for dealer := range c {
		if s.encrypted[dealer] == nil || dealer == id {
			return fmt.Errorf("client %d complains about client %d, which sent it nothing", id, dealer)
		}
	}
	s.checked[id] = true
	for _, dealer := range slices.Sorted(maps.Keys(c)) {
		if liar, why := s.judge(id, dealer, c[dealer]); s.liars[liar] == nil {
			s.liars[liar] = why
		}
	}
	return nil
}

// Exclude ends the third step: the clients that are left, and who lied. model is the digest of what clients are to make
// their vectors from.
func (s *Server) Exclude(model [sha256.Size]byte) (senders []int, liars map[int]error, err error) {
	if s.step == check {
		for _, id := range slices.Sorted(maps.Keys(s.checked)) {
			if s.liars[id] == nil {
				senders = append(senders, id)
			}
		}
		if err := s.enough(check, len(senders), "have the shares of all others"); err != nil {
			return nil, s.liars, err
		}
		s.senders = senders
		for _, l := range s.encrypted { // only commitments are needed from here on
			for to, x := range l {
				l[to] = EncryptedShare{Commitments: x.Commitments}
			}
		}
	}
	s.model = model
	return s.senders, s.liars, nil
}

// Add takes a client's masked vector.
func (s *Server) Add(id int, masked []uint64) error {
	if s.step != mask || !slices.Contains(s.senders, id) || s.masked[id] {
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
	for _, id := range s.senders {
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
	return viewOf(s.t, s.roster, s.senders, s.model)
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
	if len(a) != len(s.senders) {
		return fmt.Errorf("client %d gave %d shares; it must be %d", id, len(a), len(s.senders))
	}
	for of, b := range a {
		if !slices.Contains(s.senders, of) {
			return fmt.Errorf("client %d gave a share of client %d, which sent none", id, of)
		}
		if _, err := scalar(b); err != nil {
			return fmt.Errorf("client %d: its share of client %d: %w", id, of, err)
		}
	}
	s.answers[id] = a
	return nil
}

// Sum ends the session: the sum of the vectors of the survivors, who they are, and who gave false shares.
func (s *Server) Sum() (sum []uint64, survivors []int, liars map[int]error, err error) {
	if err := s.enough(reveal, len(s.answers), "answered the last question"); err != nil {
		return nil, nil, nil, err
	}
	clients := slices.Sorted(maps.Keys(s.answers))
	secrets, failed := s.secrets(clients[:s.t.Threshold])
	if len(failed) > 0 {
		liars = map[int]error{}
		for _, id := range clients {
			if err := s.falseShare(id); err != nil {
				liars[id] = err
			}
		}
		clients = slices.DeleteFunc(clients, func(id int) bool { return liars[id] != nil })
		if len(clients) < s.t.Threshold {
			return nil, nil, liars, fmt.Errorf("secure aggregation: %d clients gave true shares; the threshold is %d: "+
				"the round gives no sum", len(clients), s.t.Threshold)
		}
		if secrets, failed = s.secrets(clients); len(failed) > 0 {
			for _, id := range failed {
				if err := s.testDegree(s.roster[id], s.encrypted[id]); err != nil {
					liars[id] = err
				}
			}
			return nil, nil, liars, ErrDealers
		}
	}
	sum = slices.Clone(s.sum) // what Progress gives stays masked
	for _, id := range s.question.Survivors {
		s.t.Ring.addMask(sum, ownMask(secrets[id], s.t.Session, id), true)
	}
	for _, id := range s.question.Dropped {
		if err := s.without(sum, secrets[id], id); err != nil {
			return nil, nil, liars, err
		}
	}
	return sum, s.question.Survivors, liars, nil
}

// ErrDealers is why a session has no sum where Strict is off and a dealer lied. With Strict it would have been left
// out.
var ErrDealers = errors.New("secure aggregation: shares that clients are committed to are not those of their " +
	"secrets; the round gives no sum")

// asked is which of a client's secrets the question asks for, and its commitment.
func (s *Server) asked(id int) (of int, commitment [keySize]byte) {
	if s.masked[id] {
		return ofSeed, s.roster[id].Seed
	}
	return ofPair, s.roster[id].Pair
}

// secrets are those that the question asks for, from the shares of certain clients, of which as many are tried as are
// needed, one after the other; failed are the clients whose secret is not the one that they are committed to.
func (s *Server) secrets(from []int) (out map[int]secret, failed []int) {
	ring := slices.Concat(from, from)
	out, failed = map[int]secret{}, s.senders
	for i := 0; i < len(from) && len(failed) > 0 && (i == 0 || len(from) > s.t.Threshold); i++ {
		j, left := newReconstruction(ring[i:i+s.t.Threshold]), failed
		failed = nil
		for _, id := range left {
			x, err := j.secret(func(client int) []byte { return s.answers[client][id] })
			if _, want := s.asked(id); err != nil || !bytes.Equal(x.point(), want[:]) {
				failed = append(failed, id)
				continue
			}
			out[id] = x
		}
	}
	return out, failed
}

// falseShare finds a share of a client's answer that its dealer is not committed to.
func (s *Server) falseShare(client int) error {
	for _, id := range s.senders {
		if of, _ := s.asked(id); !s.encrypted[id][client].fits(of, s.answers[client][id]) {
			return fmt.Errorf("it gave a false share of client %d", id)
		}
	}
	return nil
}

// without takes off a sum the masks that the survivors share with a client whose vector is not in it.
func (s *Server) without(sum []uint64, pair secret, id int) error {
	v := s.view()
	for _, other := range s.question.Survivors {
		public := s.roster[other].Pair
		shared, err := agree(pair, public[:])
		if err != nil {
			return err
		}
		s.t.Ring.addMask(sum, pairMask(shared, s.t.Session, v, id, other), id > other)
	}
	return nil
}
