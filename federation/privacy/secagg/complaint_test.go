package secagg

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// liars runs a session of 5 clients with a threshold of 3 in which some clients change their messages. It returns the
// named clients with the reasons.
func liars(t *testing.T, deals func(s *session, id int, l EncryptedShares),
	complains func(s *session, id int, c Complaints),
	reveals func(s *session, id int, a Shares)) (sum []uint64, senders []int, named map[int]error, s *session) {
	t.Helper()
	s = newSession(t, 3, 4, 4, 0, 1, 2, 3, 4)
	named = map[int]error{}
	r, err := s.join()
	goldentest.NoError(t, err)
	s.each(share, func(id int, c *Client) error {
		l, err := c.Share(r)
		goldentest.NoError(t, err)
		if deals != nil {
			l = maps.Clone(l)
			deals(s, id, l)
		}
		if err := s.server.Deal(id, l); err != nil {
			named[id] = err
		}
		return nil
	})
	in, err := s.server.Inboxes()
	goldentest.NoError(t, err)
	s.each(check, func(id int, c *Client) error {
		if in[id] == nil {
			return nil
		}
		out, err := c.Check(in[id])
		goldentest.NoError(t, err)
		if complains != nil {
			complains(s, id, out)
		}
		if out, err = DecodeComplaints(out.Encode()); err == nil {
			err = s.server.Check(id, out)
		}
		return err
	})
	senders, found, err := s.server.Exclude(s.model)
	maps.Copy(named, found)
	goldentest.NoError(t, err)
	for id := range s.clients {
		if !slices.Contains(senders, id) {
			s.drop[id] = mask
		}
	}
	q, err := s.add(senders)
	goldentest.NoError(t, err)
	signed, err := s.agree(q)
	goldentest.NoError(t, err)
	s.each(reveal, func(id int, c *Client) error {
		a, err := c.Reveal(signed)
		goldentest.NoError(t, err)
		if reveals != nil {
			reveals(s, id, a)
		}
		return s.server.Reveal(id, a)
	})
	sum, in5, found, err := s.server.Sum()
	maps.Copy(named, found)
	if s.failed = err; err == nil {
		s.check(sum, in5, nil)
	} else if sum != nil {
		t.Error("an error and a sum")
	}
	return sum, senders, named, s
}

// resign signs a changed encrypted share as its dealer.
func (s *session) resign(from, to int, l EncryptedShare) EncryptedShare {
	s.t.Helper()
	var err error
	l.Signature, err = s.who.Sign(from, dealt(s.terms, from, to, l))
	goldentest.NoError(s.t, err)
	return l
}

// A client that lies before vectors are masked is named, alone, and left out: a dealer whose encrypted shares cannot be
// opened, do not fit its commitments, or are not signed; a client that complains about correct encrypted shares, with
// and without a proof. With a threshold of 3, two such clients of five are left out, and the sum is that of the others.
func TestComplaints(t *testing.T) {
	garbage := func(from, to int) func(s *session, id int, l EncryptedShares) {
		return func(s *session, id int, l EncryptedShares) {
			if id == from {
				x := l[to]
				x.Sealed = make([]byte, sealedSize)
				l[to] = s.resign(from, to, x)
			}
		}
	}
	complaint := func(s *session, key secret) Complaint { // about client 2, by the holder of a key
		public := s.server.roster[2].Envelope
		out, err := complain(s.terms, key, public[:], rand.Reader)
		goldentest.NoError(t, err)
		return out
	}
	for name, c := range map[string]struct {
		deals     func(s *session, id int, l EncryptedShares)
		complains func(s *session, id int, c Complaints)
		named     map[int]string
	}{
		"nobody lies": {},
		"one share that nobody can open": {deals: garbage(1, 3),
			named: map[int]string{1: "its shares for client 3: it was not encrypted for this client"}},
		"shares that nobody can open": {deals: func(s *session, id int, l EncryptedShares) {
			for to := range s.clients {
				if to != 1 {
					garbage(1, to)(s, id, l)
				}
			}
		}, named: map[int]string{1: "its shares for client 0: it was not encrypted for this client"}},
		"other shares": {deals: func(s *session, id int, l EncryptedShares) {
			if id == 1 {
				shared, err := s.clients[1].shared(s.clients[1].roster, 3)
				goldentest.NoError(t, err)
				pair, seed, err := openShares(shared, s.terms.Session, 1, 3, l[3].Sealed)
				goldentest.NoError(t, err)
				x := l[3]
				x.Sealed = sealShares(shared, s.terms.Session, 1, 3, seed, pair)
				l[3] = s.resign(1, 3, x)
			}
		}, named: map[int]string{1: "its shares for client 3: they do not fit its commitments"}},
		"an unsigned share": {deals: func(s *session, id int, l EncryptedShares) {
			if id == 1 {
				x := l[3]
				x.Signature = l[0].Signature
				l[3] = x
			}
		}, named: map[int]string{1: "its shares for client 3: the signature"}},
		"a wrong complaint about a signature": {complains: func(s *session, id int, c Complaints) {
			if id == 4 {
				c[2] = Complaint{}
			}
		}, named: map[int]string{4: "complains about the signature of client 2, which is correct"}},
		"a wrong complaint with its proof": {complains: func(s *session, id int, c Complaints) {
			if id == 4 {
				c[2] = complaint(s, s.clients[4].envelope)
			}
		}, named: map[int]string{4: "complains about the shares of client 2, which are correct"}},
		"a complaint with the proof of others": {complains: func(s *session, id int, c Complaints) {
			if id == 4 {
				c[2] = complaint(s, newSecret(rand.Reader))
			}
		}, named: map[int]string{4: "complains about client 2 without a proof: its proof is wrong"}},
		"a complaint with another key": {complains: func(s *session, id int, c Complaints) {
			if id == 4 {
				x := complaint(s, s.clients[4].envelope)
				x.Shared = newSecret(rand.Reader).point()
				c[2] = x
			}
		}, named: map[int]string{4: "complains about client 2 without a proof: its proof is wrong"}},
		"two that lie": {deals: garbage(1, 3), complains: func(s *session, id int, c Complaints) {
			if id == 4 {
				c[2] = Complaint{}
			}
		}, named: map[int]string{1: "its shares for client 3", 4: "which is correct"}},
		"a dealer without a polynomial": {deals: func(s *session, id int, l EncryptedShares) {
			if s.server.Strict = true; id == 1 {
				x := l[3]
				copy(x.Commitments[keySize:], newSecret(rand.Reader).point())
				l[3] = x
			}
		}, named: map[int]string{1: "do not belong to shares of its secrets"}},
	} {
		sum, senders, named, _ := liars(t, c.deals, c.complains, nil)
		if sum == nil || len(named) != len(c.named) || len(senders) != 5-len(c.named) {
			t.Errorf("%s: the sum %v of %v, and %v are named", name, sum, senders, named)
		}
		for id, words := range c.named {
			if named[id] == nil || !strings.Contains(named[id].Error(), words) {
				t.Errorf("%s: client %d: %v; want %q", name, id, named[id], words)
			}
		}
	}
}

// A dealer whose shares fit its commitments and can be opened, but do not belong to one polynomial or to its secrets,
// is named at the end of a session without a sum. In a strict session it is named at the start, and the sum is that of
// the others.
func TestDealersWithoutSecret(t *testing.T) {
	split := func(s *session, l EncryptedShares, x secret, coefficients int) { // of a polynomial; 3 is the threshold
		for to, share := range x.split(rand.Reader, coefficients, []int{0, 1, 2, 3, 4}) {
			s.deals(1, to, l, share.bytes())
		}
	}
	for name, deal := range map[string]func(s *session, l EncryptedShares){
		"another secret":        func(s *session, l EncryptedShares) { split(s, l, newSecret(rand.Reader), 3) },
		"too many coefficients": func(s *session, l EncryptedShares) { split(s, l, s.clients[1].seed, 4) },
		"no polynomial": func(s *session, l EncryptedShares) {
			for _, to := range []int{0, 2, 4} {
				s.deals(1, to, l, newSecret(rand.Reader).bytes())
			}
		},
		"one share of none": func(s *session, l EncryptedShares) { s.deals(1, 0, l, newSecret(rand.Reader).bytes()) },
	} {
		for _, strict := range []bool{false, true} {
			sum, senders, named, _ := liars(t, func(s *session, id int, l EncryptedShares) {
				if s.server.Strict = strict; id == 1 {
					deal(s, l)
				}
			}, nil, nil)
			if name == "one share of none" && !strict { // three others determine the secret
				if sum == nil || len(named) > 0 {
					t.Errorf("%s: the sum %v, %v are named", name, sum, named)
				}
			} else if (sum != nil) != strict || slices.Contains(senders, 1) == strict || len(named) != 1 ||
				named[1] == nil || !strings.Contains(named[1].Error(), "do not belong to shares of its secrets") {
				t.Errorf("%s, strict %v: the sum %v of %v, %v are named", name, strict, sum, senders, named)
			}
		}
	}
}

// However many clients there are, a dealer's lie costs fewer than 32 reconstructions, not one for each client.
func TestFewSubsets(t *testing.T) {
	s := &Server{params: Params{Threshold: 2}, senders: []int{0}, answers: map[int]Shares{}}
	var from []int
	for id := range 64 {
		from, s.answers[id] = append(from, id), Shares{0: newSecret(rand.Reader).bytes()}
	}
	one := testing.AllocsPerRun(1, func() { s.secrets(from[:2]) })
	if all := testing.AllocsPerRun(1, func() { s.secrets(from) }); all > 32*one {
		t.Errorf("%v allocations, %v for one subset", all, one)
	}
}

// deals puts another share of the seed into an encrypted share, with its commitment and signature.
func (s *session) deals(from, to int, l EncryptedShares, share []byte) {
	s.t.Helper()
	x, err := scalar(share)
	goldentest.NoError(s.t, err)
	one := l[to]
	copy(one.Commitments[keySize:], secret{x}.point())
	if to != from {
		c := s.clients[from]
		shared, err := c.shared(c.roster, to)
		goldentest.NoError(s.t, err)
		pair, _, err := openShares(shared, s.terms.Session, from, to, one.Sealed)
		goldentest.NoError(s.t, err)
		one.Sealed = sealShares(shared, s.terms.Session, from, to, pair, share)
		one = s.resign(from, to, one)
	}
	l[to] = one
}

// A client that reveals a false share is named, and the sum comes from the shares of others, also for a client that
// dropped out. With fewer true shares than the threshold there is no sum, and never a wrong one.
func TestFalseShares(t *testing.T) {
	lies := func(by ...int) func(s *session, id int, a Shares) {
		return func(s *session, id int, a Shares) {
			if slices.Contains(by, id) {
				a[(id+1)%5] = newSecret(rand.Reader).bytes()
			}
		}
	}
	for _, by := range [][]int{{0}, {2}, {4}, {0, 1}, {1, 3}, {0, 1, 2}, {0, 1, 2, 3, 4}} {
		sum, _, named, s := liars(t, nil, nil, lies(by...))
		// the server uses only the first three answers, unless one is false
		if want := len(by) < 3; (sum != nil) != want {
			t.Errorf("%v give false shares: the sum %v", by, sum)
		}
		if left := 5 - len(by); left < 3 {
			says(t, s.failed, fmt.Sprintf("%d clients gave true shares; the threshold is 3", left))
		}
		for _, id := range by {
			if named[id] == nil && by[0] < 3 {
				t.Errorf("%v give false shares, %v are named", by, named)
			}
		}
		if len(named) > len(by) {
			t.Errorf("%v give false shares, %v are named", by, named)
		}
	}
	s, q := masked(t) // client 4 dropped out
	signed, err := s.agree(q)
	goldentest.NoError(t, err)
	s.each(reveal, func(id int, c *Client) error {
		a, err := c.Reveal(signed)
		if id == 1 {
			a[4] = newSecret(rand.Reader).bytes()
		}
		if err != nil {
			return err
		}
		return s.server.Reveal(id, a)
	})
	sum, who, named, err := s.server.Sum()
	if s.check(sum, who, err); len(named) != 1 || named[1] == nil {
		t.Errorf("%v are named", named)
	}
}
