package secagg

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Server is the server's side of one session. A refused message has no effect, as if the client had dropped out. A
// Server is not safe for concurrent use.
type Server struct {
	// Strict lets Deal test that a dealer's commitments belong to shares of its secrets, at the cost of two group
	// multiplications for each pair of clients. Otherwise Sum finds such a dealer, and there is no sum.
	Strict    bool
	params    Params
	who       Identity
	peers     Peers
	step      step
	roster    Roster
	known     map[int]map[int][]byte  // fingerprints known to each client
	encrypted map[int]EncryptedShares // by dealer
	degree    *degreeTest             // of the roster; nil until it is needed
	checked   map[int]bool            // clients that checked their shares
	liars     map[int]error
	senders   []int // clients with valid shares of all others, whose own shares are all valid
	model     [sha256.Size]byte
	masked    map[int]bool // clients whose vectors are in sum
	sum       []uint64
	question  UnmaskRequest
	signed    Signatures
	answers   map[int]Shares
}

// NewServer starts a session. It uses who only to verify, and adds the proofs of clients to peers.
func NewServer(t Params, who Identity, peers Peers) (*Server, error) {
	return &Server{params: t, who: who, peers: peers, roster: Roster{}, known: map[int]map[int][]byte{},
			encrypted: map[int]EncryptedShares{}, checked: map[int]bool{}, liars: map[int]error{},
			masked: map[int]bool{}, signed: Signatures{}, answers: map[int]Shares{}},
		t.check()
}

// Progress is the state of a server's session after a finished step. It has no secrets. Clients answer repeated
// requests again.
type Progress struct {
	Terms           Params
	Roster          []byte         // with all proofs; nil while clients advertise
	EncryptedShares map[int][]byte // by dealer, later only the commitments; nil while clients share
	Senders         []int          // nil while clients check encrypted shares
	Survivors       []int          // nil while clients upload
	Sum             []uint64       // of the survivors' masked vectors
}

// Progress returns the state for Resume.
func (s *Server) Progress() Progress {
	progress := Progress{Terms: s.params}
	if s.step > advertise {
		progress.Roster = s.roster.Encode()
	}

	if s.step > share {
		progress.EncryptedShares = map[int][]byte{}
		for id, e := range s.encrypted {
			progress.EncryptedShares[id] = e.Encode()
		}
	}

	if s.step > check {
		progress.Senders = s.senders
	}

	if s.step > mask {
		progress.Survivors, progress.Sum = s.question.Survivors, s.sum
	}

	return progress
}

// Resume continues the session of an earlier process.
func Resume(progress Progress, model [sha256.Size]byte, who Identity, peers Peers) (*Server, error) {
	server, err := NewServer(progress.Terms, who, peers)
	if err != nil || progress.Roster == nil {
		return server, err
	}

	server.model = model
	if server.roster, err = DecodeRoster(progress.Roster); err != nil {
		return nil, err
	}

	for id, a := range server.roster {
		server.peers[id] = a.Proof
	}

	if server.step = share; progress.EncryptedShares == nil {
		return server, nil
	}

	for id, b := range progress.EncryptedShares {
		if server.encrypted[id], err = DecodeEncryptedShares(b); err != nil {
			return nil, err
		}
	}

	if server.step = check; progress.Senders == nil {
		return server, nil
	}

	if server.step, server.senders = mask, progress.Senders; progress.Survivors == nil {
		return server, nil
	}

	for _, id := range progress.Survivors {
		server.masked[id] = true
	}

	server.sum = slices.Clone(progress.Sum)
	_, err = server.Unmask()
	return server, err
}

// enough ends a step if enough clients are left.
func (s *Server) enough(from step, have int, what string) error {
	if s.step != from {
		return errOrder
	}

	if have < s.params.Threshold {
		return fmt.Errorf("secure aggregation: %d clients %s; the threshold is %d: the round gives no sum", have, what,
			s.params.Threshold)
	}

	s.step++
	return nil
}

// Finished returns the number of finished steps.
func (s *Server) Finished() int { return int(s.step) }

// Clients returns the clients that take part in the current step; nil in the first one.
func (s *Server) Clients() []int {
	switch s.step {
	case advertise:
		return nil
	case share:
		return slices.Sorted(maps.Keys(s.roster))
	case check:
		return slices.Sorted(maps.Keys(s.encrypted))
	case mask:
		return s.senders
	}

	return slices.Sorted(maps.Keys(s.masked))
}

// Senders returns the clients that may upload.
func (s *Server) Senders() []int { return s.senders }

// Join accepts a client's keys, unless other clients would refuse them.
func (s *Server) Join(id int, joining Joining) error {
	if s.step != advertise {
		return errOrder
	}

	if _, ok := s.roster[id]; ok || id < 0 || id >= min(maxID, s.params.Clients) {
		return fmt.Errorf("client %d advertised twice, or its number is invalid", id)
	}

	if joining.Envelope == joining.Pair {
		return fmt.Errorf("client %d has one key for two purposes", id)
	}

	for other, o := range s.roster {
		if joining.Envelope == o.Envelope || joining.Pair == o.Pair || joining.Envelope == o.Pair ||
			joining.Pair == o.Envelope {
			return fmt.Errorf("client %d has a key of client %d", id, other)
		}
	}

	for _, key := range [][keySize]byte{joining.Envelope, joining.Pair, joining.Seed} {
		if _, err := decodePoint(key[:]); err != nil {
			return fmt.Errorf("the keys of client %d: %w", id, err)
		}
	}

	proof, err := s.peers.proof(s.who, id, joining.Proof)
	if err != nil {
		return err
	}

	if err := s.who.Verify(id, proof, advertised(s.params, id, joining.Keys), joining.Signature); err != nil {
		return fmt.Errorf("the keys of client %d: %w", id, err)
	}

	s.peers[id] = proof
	s.roster[id], s.known[id] = Advert{joining.Keys, joining.Signature, proof}, joining.Known
	return nil
}

// Roster ends the first step. It leaves out proofs that all clients of the roster know.
func (s *Server) Roster() (Roster, error) {
	if s.step == advertise {
		if err := s.enough(advertise, len(s.roster), "advertised keys"); err != nil {
			return nil, err
		}
	}

	out := maps.Clone(s.roster)
	for id, a := range out {
		print, all := Fingerprint(a.Proof), len(s.known) == len(s.roster)
		for other, known := range s.known {
			all = all && (other == id || bytes.Equal(known[id], print))
		}
		if all {
			a.Proof = nil
			out[id] = a
		}
	}

	return out, nil
}

// Deal accepts the shares of a client for the others.
func (s *Server) Deal(id int, shares EncryptedShares) error {
	own, ok := s.roster[id]
	if s.step != share || !ok || s.encrypted[id] != nil {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}

	if len(shares) != len(s.roster) {
		return fmt.Errorf("client %d sent shares for %d clients; it must be the %d of the roster", id, len(shares),
			len(s.roster))
	}

	for to, x := range shares {
		if _, ok := s.roster[to]; !ok || (len(x.Sealed) == 0) != (to == id) {
			return fmt.Errorf("client %d sent no shares for each other client of the roster", id)
		}
	}

	if s.Strict {
		if err := s.testDegree(own, shares); err != nil {
			return err
		}
	}

	s.encrypted[id] = shares
	return nil
}

// testDegree reports commitments of a dealer that do not belong to shares of its secrets.
func (s *Server) testDegree(own Advert, l EncryptedShares) error {
	if s.degree == nil {
		test := newDegreeTest(s.params.Threshold, slices.Sorted(maps.Keys(s.roster)))
		s.degree = &test
	}

	for which, secret := range [][keySize]byte{own.Pair, own.Seed} {
		if err := s.degree.check(secret[:], which, l); err != nil {
			return err
		}
	}

	return nil
}

// Inboxes ends the second step and returns the shares for each remaining client.
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

// Check judges a client's complaints about its encrypted shares. The liar, dealer or client, is left out.
func (s *Server) Check(id int, complaints Complaints) error {
	if s.step != check || s.encrypted[id] == nil || s.checked[id] {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}

	for dealer := range complaints {
		if s.encrypted[dealer] == nil || dealer == id {
			return fmt.Errorf("client %d complains about client %d, which sent it nothing", id, dealer)
		}
	}

	s.checked[id] = true
	for _, dealer := range slices.Sorted(maps.Keys(complaints)) {
		if liar, why := s.judge(id, dealer, complaints[dealer]); s.liars[liar] == nil {
			s.liars[liar] = why
		}
	}

	return nil
}

// Exclude ends the third step and returns the remaining clients, and who lied. model is the digest of the input of the
// clients' vectors.
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

// Add adds a client's masked vector.
func (s *Server) Add(id int, masked []uint64) error {
	if s.step != mask || !slices.Contains(s.senders, id) || s.masked[id] {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}

	if len(masked) != s.params.Length {
		return fmt.Errorf("client %d uploaded %d numbers; it must be %d", id, len(masked), s.params.Length)
	}

	if s.sum == nil {
		s.sum = make([]uint64, s.params.Length)
	}

	s.params.Ring.add(s.sum, masked)
	s.masked[id] = true
	return nil
}

// Unmask ends the upload step and returns the question to all clients whose vectors arrived.
func (s *Server) Unmask() (UnmaskRequest, error) {
	if s.step > mask {
		return s.question, nil
	}

	if err := s.enough(mask, len(s.masked), "uploaded"); err != nil {
		return UnmaskRequest{}, err
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

// Agree accepts a client's signature of the question.
func (s *Server) Agree(id int, signature []byte) error {
	if s.step != agreement || !s.masked[id] || s.signed[id] != nil {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}

	if err := s.who.Verify(id, s.roster[id].Proof, agreed(s.view(), s.question), signature); err != nil {
		return fmt.Errorf("client %d did not sign the server's view of the session: %w", id, err)
	}

	s.signed[id] = signature
	return nil
}

func (s *Server) view() view {
	return viewOf(s.params, s.roster, s.senders, s.model)
}

// Signatures ends the fifth step and returns as many signatures as clients need to reveal their shares.
func (s *Server) Signatures() (Signatures, error) {
	if err := s.enough(agreement, len(s.signed), "agreed on who stayed"); err != nil {
		return nil, err
	}

	out := Signatures{}
	for _, id := range slices.Sorted(maps.Keys(s.signed))[:s.params.Threshold] {
		out[id] = s.signed[id]
	}

	return out, nil
}

// Reveal accepts a client's answer to the question.
func (s *Server) Reveal(id int, shares Shares) error {
	if s.step != reveal || !s.masked[id] || s.answers[id] != nil {
		return fmt.Errorf("client %d: %w", id, errOrder)
	}

	if len(shares) != len(s.senders) {
		return fmt.Errorf("client %d gave %d shares; it must be %d", id, len(shares), len(s.senders))
	}

	for owner, b := range shares {
		if !slices.Contains(s.senders, owner) {
			return fmt.Errorf("client %d gave a share of client %d, which sent none", id, owner)
		}
		if _, err := scalar(b); err != nil {
			return fmt.Errorf("client %d: its share of client %d: %w", id, owner, err)
		}
	}

	s.answers[id] = shares
	return nil
}

// Sum ends the session. It returns the sum of the survivors' vectors, the survivors, and who revealed false shares.
func (s *Server) Sum() (sum []uint64, survivors []int, liars map[int]error, err error) {
	if err := s.enough(reveal, len(s.answers), "answered the last question"); err != nil {
		return nil, nil, nil, err
	}

	clients := slices.Sorted(maps.Keys(s.answers))
	secrets, failed := s.secrets(clients[:s.params.Threshold])
	if len(failed) > 0 {
		liars = map[int]error{}
		for _, id := range clients {
			if err := s.falseShare(id); err != nil {
				liars[id] = err
			}
		}

		clients = slices.DeleteFunc(clients, func(id int) bool { return liars[id] != nil })
		if len(clients) < s.params.Threshold {
			return nil, nil, liars, fmt.Errorf("secure aggregation: %d clients gave true shares; the threshold is %d: "+
				"the round gives no sum", len(clients), s.params.Threshold)
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

	sum = slices.Clone(s.sum) // Progress keeps the masked sum
	for _, id := range s.question.Survivors {
		s.params.Ring.addMask(sum, ownMask(secrets[id], s.params.Session, id), true)
	}

	for _, id := range s.question.Dropped {
		if err := s.without(sum, secrets[id], id); err != nil {
			return nil, nil, liars, err
		}
	}

	return sum, s.question.Survivors, liars, nil
}

// ErrDealers reports a session without a sum because a dealer lied. A Strict session would have excluded the dealer.
var ErrDealers = errors.New("secure aggregation: the committed shares of clients do not belong to their secrets; " +
	"the round gives no sum")

// asked returns which secret of a client the question asks for, and its commitment.
func (s *Server) asked(id int) (which int, commitment [keySize]byte) {
	if s.masked[id] {
		return ofSeed, s.roster[id].Seed
	}
	return ofPair, s.roster[id].Pair
}

// maxSubsets bounds the subsets that secrets tries: fewer than twice so many, as each takes Threshold^2 products.
const maxSubsets = 16

// secrets reconstructs the secrets of the question from the shares of certain clients. If there are more than
// Threshold, it tries subsets one after the other. failed are the clients whose secret does not fit its commitment.
func (s *Server) secrets(from []int) (out map[int]secret, failed []int) {
	ring := slices.Concat(from, from)
	out, failed = map[int]secret{}, s.senders
	apart := max(1, len(from)/maxSubsets)
	for i := 0; i < len(from) && len(failed) > 0 && (i == 0 || len(from) > s.params.Threshold); i += apart {
		j, left := newReconstruction(ring[i:i+s.params.Threshold]), failed
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

// falseShare reports a share in a client's answer that does not fit the dealer's commitment.
func (s *Server) falseShare(client int) error {
	for _, id := range s.senders {
		if which, _ := s.asked(id); !s.encrypted[id][client].fits(which, s.answers[client][id]) {
			return fmt.Errorf("it gave a false share of client %d", id)
		}
	}
	return nil
}

// without subtracts from sum the masks between the survivors and a client whose vector is not in it.
func (s *Server) without(sum []uint64, pair secret, id int) error {
	v := s.view()
	for _, other := range s.question.Survivors {
		public := s.roster[other].Pair
		shared, err := agree(pair, public[:])
		if err != nil {
			return err
		}
		s.params.Ring.addMask(sum, pairMask(shared, s.params.Session, v, id, other), id > other)
	}

	return nil
}
