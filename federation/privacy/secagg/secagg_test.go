package secagg

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// session runs the protocol through the encoded form of every message. drop has the step from which each client is
// gone.
type session struct {
	t       testing.TB
	terms   Params
	server  *Server
	clients map[int]*Client
	values  map[int][]uint64
	drop    map[int]step
	masked  map[int][]uint64
	who     *LocalIdentity
	peers   map[int]Peers
	model   [32]byte
	failed  error // of Sum, after liars
}

func newSession(t testing.TB, threshold, length, width int, ids ...int) *session {
	t.Helper()
	s := &session{t: t, terms: Params{Threshold: threshold, Length: length, Ring: Ring{width}, Clients: maxID},
		clients: map[int]*Client{}, who: &LocalIdentity{}, peers: map[int]Peers{},
		values: map[int][]uint64{}, drop: map[int]step{}, masked: map[int][]uint64{}}
	rand.Read(s.terms.Session[:])
	var err error
	s.server, err = NewServer(s.terms, s.who, Peers{})
	goldentest.NoError(t, err)
	for _, id := range ids {
		s.peers[id] = Peers{}
		s.clients[id], err = NewClient(id, s.terms, s.who, s.peers[id], rand.Reader)
		goldentest.NoError(t, err)
		v := make([]uint64, length)
		for i := range v {
			v[i] = mathrand.Uint64() & s.terms.Ring.mask()
		}
		s.values[id] = v
	}
	return s
}

func (s *session) here(id int, at step) bool {
	gone, ok := s.drop[id]
	return !ok || at < gone
}

// restart restores a client from its state.
func (s *session) restart(id int) {
	s.t.Helper()
	text, err := json.Marshal(s.clients[id].State())
	var m ClientState
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err == nil {
		s.clients[id], err = Restore(id, m, s.who, s.peers[id], rand.Reader)
	}
	goldentest.NoError(s.t, err)
}

// resume restores the server from its progress.
func (s *session) resume() {
	s.t.Helper()
	text, err := json.Marshal(s.server.Progress())
	var p Progress
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err == nil {
		s.server, err = Resume(p, s.model, s.who, Peers{})
	}
	goldentest.NoError(s.t, err)
}

func (s *session) each(at step, f func(id int, c *Client) error) {
	s.t.Helper()
	for _, id := range slices.Sorted(maps.Keys(s.clients)) {
		if s.here(id, at) {
			if err := f(id, s.clients[id]); err != nil {
				s.t.Fatalf("client %d: %v", id, err)
			}
		}
	}
}

// join, deal, exclude, add, agree and answer are the steps.
func (s *session) join() (Roster, error) {
	s.each(advertise, func(id int, c *Client) error {
		k, err := c.Advertise()
		if err != nil {
			return err
		}
		if k, err = DecodeJoining(k.Encode()); err != nil {
			return err
		}
		return s.server.Join(id, k)
	})
	r, err := s.server.Roster()
	if err != nil {
		return nil, err
	}
	return DecodeRoster(r.Encode())
}

func (s *session) deal(r Roster) (map[int]EncryptedShares, error) {
	s.each(share, func(id int, c *Client) error {
		l, err := c.Share(r)
		if err != nil {
			return err
		}
		if l, err = DecodeEncryptedShares(l.Encode()); err != nil {
			return err
		}
		return s.server.Deal(id, l)
	})
	return s.server.Inboxes()
}

// exclude lets clients check their encrypted shares.
func (s *session) exclude(inboxes map[int]EncryptedShares) (senders []int, err error) {
	s.each(check, func(id int, c *Client) error {
		in, err := DecodeEncryptedShares(inboxes[id].Encode())
		if err != nil {
			return err
		}
		out, err := c.Check(in)
		if err != nil {
			return err
		}
		if out, err = DecodeComplaints(out.Encode()); err != nil {
			return err
		}
		return s.server.Check(id, out)
	})
	if senders, _, err = s.server.Exclude(s.model); err != nil {
		return nil, err
	}
	return DecodeClients(EncodeClients(senders))
}

func (s *session) add(senders []int) (UnmaskRequest, error) {
	s.each(mask, func(id int, c *Client) error {
		y, err := c.Mask(senders, s.model, s.values[id])
		if err != nil {
			return err
		}
		if y, err = s.terms.Ring.Decode(s.terms.Ring.Encode(y)); err != nil {
			return err
		}
		s.masked[id] = y
		return s.server.Add(id, y)
	})
	q, err := s.server.Unmask()
	if err != nil {
		return q, err
	}
	return DecodeUnmaskRequest(q.Encode())
}

func (s *session) agree(q UnmaskRequest) (Signatures, error) {
	s.each(agreement, func(id int, c *Client) error {
		b, err := c.Agree(q)
		if err != nil {
			return err
		}
		return s.server.Agree(id, b)
	})
	signed, err := s.server.Signatures()
	if err != nil {
		return nil, err
	}
	return DecodeSignatures(signed.Encode())
}

func (s *session) answer(signed Signatures) ([]uint64, []int, error) {
	s.each(reveal, func(id int, c *Client) error {
		a, err := c.Reveal(signed)
		if err != nil {
			return err
		}
		if a, err = DecodeShares(a.Encode()); err != nil {
			return err
		}
		return s.server.Reveal(id, a)
	})
	before := slices.Clone(s.server.Progress().Sum)
	sum, in, liars, err := s.server.Sum()
	if !slices.Equal(s.server.Progress().Sum, before) {
		s.t.Error("what the server remembers is not masked")
	}
	if len(liars) > 0 {
		s.t.Errorf("honest clients are named: %v", liars)
	}
	return sum, in, err
}

func (s *session) run() ([]uint64, []int, error) {
	r, err := s.join()
	if err != nil {
		return nil, nil, err
	}
	in, err := s.deal(r)
	if err != nil {
		return nil, nil, err
	}
	senders, err := s.exclude(in)
	if err != nil {
		return nil, nil, err
	}
	q, err := s.add(senders)
	if err != nil {
		return nil, nil, err
	}
	signed, err := s.agree(q)
	if err != nil {
		return nil, nil, err
	}
	return s.answer(signed)
}

// check compares the result with the plain sum of the expected clients.
func (s *session) check(sum []uint64, in []int, err error) {
	s.t.Helper()
	goldentest.NoError(s.t, err)
	want, who := make([]uint64, s.terms.Length), []int{}
	for _, id := range slices.Sorted(maps.Keys(s.clients)) {
		if s.here(id, mask) {
			who = append(who, id)
			for i, v := range s.values[id] {
				want[i] = (want[i] + v) & s.terms.Ring.mask()
			}
		}
	}
	if !slices.Equal(in, who) || !slices.Equal(sum, want) {
		s.t.Errorf("%v dropped: the sum of %v differs from that of %v", s.drop, in, who)
	}
}

func TestSumOfAll(t *testing.T) {
	for width := 1; width <= 8; width++ {
		s := newSession(t, 3, 1000, width, 0, 1, 5, 17, 1000000)
		s.check(s.run())
	}
	s := newSession(t, 2, 3*chunk+5, 5, 3, 4)
	s.check(s.run())
}

// Any 2 of 6 clients may drop out, each at any step, with a threshold of 4.
func TestDropouts(t *testing.T) {
	ids := []int{2, 3, 5, 7, 11, 13}
	for i, a := range ids {
		for _, b := range ids[i+1:] {
			for from := advertise; from <= reveal; from++ {
				for until := from; until <= reveal; until++ {
					s := newSession(t, 4, 3, 4, ids...)
					s.drop[a], s.drop[b] = from, until
					s.check(s.run())
				}
			}
		}
	}
}

// More dropouts cause an error that names the step, and no sum.
func TestTooFew(t *testing.T) {
	for at, words := range map[step]string{advertise: "advertised keys", share: "sent shares",
		check: "have the shares of all others", mask: "uploaded",
		agreement: "agreed on who stayed", reveal: "answered the last question"} {
		s := newSession(t, 4, 3, 4, 0, 1, 2, 3, 4, 5)
		s.drop[0], s.drop[3], s.drop[4] = at, at, at
		sum, _, err := s.run()
		if err == nil || sum != nil || !strings.Contains(err.Error(), fmt.Sprintf("3 clients %s; the threshold is 4",
			words)) {
			t.Errorf("step %d: %v, %v", at, sum, err)
		}
	}
}

// Random sessions with any dropouts above the threshold.
func TestRandomSessions(t *testing.T) {
	for seed := range uint64(30) {
		r := mathrand.New(mathrand.NewPCG(seed, 1))
		n := 2 + r.IntN(12)
		threshold := max(2, n/2+1+r.IntN(n-n/2))
		threshold = min(threshold, n)
		s := newSession(t, threshold, 1+r.IntN(50), 1+r.IntN(8), r.Perm(100)[:n]...)
		gone := slices.Collect(maps.Keys(s.clients))
		for _, id := range gone[:r.IntN(n-threshold+1)] {
			s.drop[id] = step(r.IntN(int(reveal) + 1))
		}
		s.check(s.run())
	}
}
