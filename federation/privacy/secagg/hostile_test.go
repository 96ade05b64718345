package secagg

import (
	"bytes"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

func says(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v; want %q in one line", err, words)
	}
}

// masked returns a session of 5 clients with a threshold of 3, up to the question; client 4 dropped out with its
// vector.
func masked(t *testing.T) (*session, UnmaskRequest) {
	t.Helper()
	s := newSession(t, 3, 4, 4, 0, 1, 2, 3, 4)
	s.drop[4] = mask
	r, err := s.join()
	goldentest.NoError(t, err)
	in, err := s.deal(r)
	goldentest.NoError(t, err)
	senders, err := s.exclude(in)
	goldentest.NoError(t, err)
	q, err := s.add(senders)
	goldentest.NoError(t, err)
	return s, q
}

// A client refuses every question that would reveal one vector, and then still answers the correct one.
func TestClientRefusesQuestions(t *testing.T) {
	s, q := masked(t)
	c := s.clients[0]
	for words, bad := range map[string]UnmaskRequest{
		"both secrets of client 1": {[]int{0, 1, 2, 3}, []int{1, 4}},
		"both secrets of client 0": {[]int{0, 1, 2, 3}, []int{0, 4}},
		"one twice":                {[]int{0, 1, 1, 2, 3}, []int{4}},
		"that this client drop":    {[]int{1, 2, 3}, []int{0, 4}},
		"that 2 clients stay":      {[]int{0, 1}, []int{2, 3, 4}},
		"client 9 is requested":    {[]int{0, 1, 2, 3, 9}, []int{4}},
		"about 4 clients; 5 could": {[]int{0, 1, 2, 3}, nil},
	} {
		_, err := c.Agree(bad)
		says(t, err, words)
	}
	signed, err := s.agree(q)
	goldentest.NoError(t, err)
	for words, bad := range map[string]Signatures{
		"2 clients signed this client's view":      {0: signed[0], 1: signed[1]},
		"1 clients signed this client's view":      {4: signed[0], 7: signed[1]},
		"client 1 did not sign this client's view": {1: signed[2], 2: signed[2]},
	} {
		_, err := c.Reveal(bad)
		says(t, err, words)
	}
	first, err := c.Reveal(signed)
	goldentest.NoError(t, err)
	again, err := c.Reveal(signed)
	if err != nil || !bytes.Equal(first.Encode(), again.Encode()) {
		t.Errorf("the same question has another answer, or %v", err)
	}
	_, err = c.Agree(UnmaskRequest{[]int{0, 1, 2}, []int{3, 4}})
	says(t, err, "agreed to another question")
	_, err = c.Agree(UnmaskRequest{[]int{0, 1, 2, 3, 4}, nil})
	says(t, err, "agreed to another question")
}

// Steps come once and in order.
func TestClientKeepsTheOrder(t *testing.T) {
	s := newSession(t, 2, 1, 4, 0, 1, 2)
	c := s.clients[0]
	_, err := c.Check(EncryptedShares{})
	says(t, err, "out of order")
	_, err = c.Mask([]int{0, 1}, s.model, []uint64{1})
	says(t, err, "out of order")
	_, err = c.Agree(UnmaskRequest{})
	says(t, err, "out of order")
	_, err = c.Reveal(Signatures{})
	says(t, err, "out of order")
	r, err := s.join()
	goldentest.NoError(t, err)
	for words, change := range map[string]func(Roster){
		"does not have this client's own": func(r Roster) { delete(r, 0) },
		"the same key":                    func(r Roster) { r[1] = r[2] },
		"has 1 clients; 2 must stay":      func(r Roster) { delete(r, 1); delete(r, 2) },
		"a server could ask two halves":   func(r Roster) { r[7] = Advert{} },
		"client 7 sent no key, and none": func(r Roster) {
			delete(r, 1)
			r[7] = Advert{Keys: Keys{Pair: [32]byte{8}}}
		},
		"client 1073741824, but there are only 1": func(r Roster) { delete(r, 1); r[maxID] = r[2]; delete(r, 2) },
		// the neutral element
		"the keys of client 1":             func(r Roster) { r[1] = s.signed(1, Keys{Pair: [32]byte{8}}) },
		"does not have this client's own ": func(r Roster) { r[0] = Advert{Keys: Keys{Pair: [32]byte{8}}} },
	} {
		bad := maps.Clone(r)
		change(bad)
		_, err := c.Share(bad)
		says(t, err, words)
	}
	in, err := s.deal(r)
	goldentest.NoError(t, err)
	less := maps.Clone(r)
	delete(less, 2)
	_, err = c.Share(less)
	says(t, err, "accepted another roster")
	_, err = c.Mask([]int{0, 1, 2}, s.model, []uint64{1})
	says(t, err, "out of order")
	_, err = c.Check(EncryptedShares{5: in[0][1]})
	says(t, err, "client 5, which is not one of")
	_, err = c.Check(EncryptedShares{0: in[0][1]})
	says(t, err, "client 0, which is not one of")
	if out, err := c.Check(EncryptedShares{1: in[0][1]}); err != nil || len(out) > 0 { // 2 sent no shares
		t.Fatal(out, err)
	}
	_, err = c.Check(in[0])
	says(t, err, "got other shares")
	senders := []int{0, 1}
	_, err = c.Mask(senders, s.model, []uint64{1, 2})
	says(t, err, "2 numbers; the session is for 1")
	_, err = c.Mask([]int{0}, s.model, []uint64{1})
	says(t, err, "1 clients may upload; 2 must stay")
	_, err = c.Mask([]int{1, 2}, s.model, []uint64{1})
	says(t, err, "excludes this client")
	_, err = c.Mask([]int{0, 1, 2}, s.model, []uint64{1})
	says(t, err, "client 2 may upload, but this client has no shares")
	first, err := c.Mask(senders, s.model, []uint64{1})
	goldentest.NoError(t, err)
	if again, err := c.Mask(senders, s.model, []uint64{2}); err != nil || !slices.Equal(first, again) {
		t.Errorf("a second vector of the same session, %v", err)
	}
	_, err = c.Mask([]int{0, 1, 2}, s.model, []uint64{1})
	says(t, err, "masked for other clients")
	_, err = c.Mask(senders, [32]byte{1}, []uint64{1})
	says(t, err, "made from other parameters")
	for _, bad := range []Params{{}, {Threshold: 1, Length: 1, Ring: Ring{4}}, {Threshold: 2, Ring: Ring{4}},
		{Threshold: 2, Length: 1, Ring: Ring{9}}} {
		_, err := NewServer(bad, s.who, Peers{})
		says(t, err, "the threshold must be 2")
	}
	_, err = NewClient(-1, s.terms, s.who, Peers{}, rand.Reader)
	says(t, err, "client -1: numbers of clients must lie between 0 and 1073741823")
	_, err = NewClient(maxID, s.terms, s.who, Peers{}, rand.Reader)
	says(t, err, "client 1073741824")
}

// A refused message leaves the session unchanged: the sum of the others is correct.
func TestServerRefusesClients(t *testing.T) {
	s := newSession(t, 3, 4, 4, 0, 1, 2, 3, 4)
	srv := s.server
	srv.Strict = true
	r, err := s.join()
	goldentest.NoError(t, err)
	says(t, srv.Join(9, Joining{}), "out of order")
	e, err := s.clients[4].Share(r)
	goldentest.NoError(t, err)
	s.drop[4] = share
	s.each(share, func(id int, c *Client) error {
		good, err := c.Share(r)
		if err != nil {
			return err
		}
		less := maps.Clone(good)
		delete(less, 4)
		says(t, srv.Deal(id, less), "sent shares for 4 clients; it must be the 5")
		less[9] = good[4]
		says(t, srv.Deal(id, less), "no shares for each other client")
		bad := maps.Clone(good)
		bad[4] = EncryptedShare{Commitments: good[4].Commitments}
		says(t, srv.Deal(id, bad), "no shares for each other client")
		bad[4], bad[id] = good[4], good[4]
		says(t, srv.Deal(id, bad), "no shares for each other client")
		for _, to := range []int{id, 4} { // commitments without a polynomial, for one client
			for which := range 2 {
				bad = maps.Clone(good)
				x := bad[to]
				copy(x.Commitments[which*keySize:], newSecret(rand.Reader).point())
				bad[to] = x
				says(t, srv.Deal(id, bad), "do not belong to shares of its secrets")
			}
		}
		x := good[4]
		copy(x.Commitments[:], make([]byte, keySize))
		bad = maps.Clone(good)
		bad[4] = x
		says(t, srv.Deal(id, bad), "a commitment: it is not a key")
		if err := srv.Deal(id, good); err != nil {
			return err
		}
		says(t, srv.Deal(id, good), "out of order")
		return nil
	})
	says(t, srv.Deal(77, e), "out of order")
	in, err := srv.Inboxes()
	goldentest.NoError(t, err)
	says(t, srv.Deal(4, e), "out of order")
	says(t, srv.Check(4, nil), "out of order")
	says(t, srv.Check(0, Complaints{0: {}}), "which sent it nothing")
	says(t, srv.Check(0, Complaints{4: {}}), "which sent it nothing")
	senders, err := s.exclude(in)
	goldentest.NoError(t, err)
	says(t, srv.Check(0, nil), "out of order")
	says(t, srv.Add(4, make([]uint64, 4)), "out of order")
	says(t, srv.Add(0, make([]uint64, 5)), "5 numbers; it must be 4")
	q, err := s.add(senders)
	goldentest.NoError(t, err)
	says(t, srv.Add(0, make([]uint64, 4)), "out of order")
	s.each(agreement, func(id int, c *Client) error {
		b, err := c.Agree(q)
		if err != nil {
			return err
		}
		says(t, srv.Agree(id, []byte{1}), "did not sign the server's view")
		says(t, srv.Agree(4, b), "out of order")
		if err := srv.Agree(id, b); err != nil {
			return err
		}
		says(t, srv.Agree(id, b), "out of order")
		return nil
	})
	signed, err := srv.Signatures()
	goldentest.NoError(t, err)
	s.each(reveal, func(id int, c *Client) error {
		good, err := c.Reveal(signed)
		if err != nil {
			return err
		}
		bad := maps.Clone(good)
		delete(bad, 0)
		says(t, srv.Reveal(id, bad), "gave 3 shares; it must be 4")
		bad[4] = good[0]
		says(t, srv.Reveal(id, bad), "client 4, which sent none")
		bad = maps.Clone(good)
		bad[0] = bytes.Repeat([]byte{255}, 32)
		says(t, srv.Reveal(id, bad), "not an element of the field")
		if err := srv.Reveal(id, good); err != nil {
			return err
		}
		says(t, srv.Reveal(id, good), "out of order")
		return nil
	})
	sum, who, _, err := srv.Sum()
	s.check(sum, who, err)
}
