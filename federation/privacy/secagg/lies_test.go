package secagg

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
)

// signed returns a client's advertisement of any keys.
func (s *session) signed(id int, k Keys) Advert {
	s.t.Helper()
	proof, err := s.who.Proof(id)
	goldentest.NoError(s.t, err)
	signature, err := s.who.Sign(id, advertised(s.terms, id, k))
	goldentest.NoError(s.t, err)
	return Advert{k, signature, proof}
}

// unknownKeys returns unknown keys.
func unknownKeys() (k Keys) {
	for _, at := range []*[keySize]byte{&k.Envelope, &k.Pair, &k.Seed} {
		copy(at[:], newSecret(rand.Reader).point())
	}
	return k
}

// certified is a LocalIdentity whose keys are certified.
type certified struct{ *LocalIdentity }

func (c certified) Certified() bool { return true }

func (c certified) Verify(client int, proof, message, signature []byte) error {
	if own, err := c.Proof(client); err != nil || !bytes.Equal(proof, own) {
		return errors.New("no certificate of it")
	}
	return c.LocalIdentity.Verify(client, proof, message, signature)
}

// With certificates a server cannot put invented clients into a roster, or its own keys, or keys of another round,
// session, number of clients or threshold. Without certificates, known keys cannot be replaced.
func TestRosterOfLies(t *testing.T) {
	s := newSession(t, 3, 1, 4, 0, 1, 2, 3, 4)
	r, err := s.join()
	goldentest.NoError(t, err)
	forged := func(id int) Advert { // with a key, but no certificate
		k := unknownKeys()
		public, private, _ := ed25519.GenerateKey(rand.Reader)
		return Advert{k, ed25519.Sign(private, advertised(s.terms, id, k)), public}
	}
	replayed := func(change func(*Params)) func(Roster) {
		return func(r Roster) {
			other := s.terms
			change(&other)
			a := r[1]
			a.Signature, _ = s.who.Sign(1, advertised(other, 1, a.Keys))
			r[1] = a
		}
	}
	c, err := NewClient(0, s.terms, certified{s.who}, Peers{}, rand.Reader)
	goldentest.NoError(t, err)
	own, err := c.Advertise()
	goldentest.NoError(t, err)
	r[0] = own.Advert
	for name, change := range map[string]func(Roster){
		"an invented client":    func(r Roster) { delete(r, 4); r[9] = forged(9) },
		"keys of the server":    func(r Roster) { r[1] = forged(1) },
		"one key exchanged":     func(r Roster) { a := r[1]; a.Pair[3] ^= 1; r[1] = a },
		"the commitment":        func(r Roster) { a := r[1]; a.Seed[3] ^= 1; r[1] = a },
		"another's signature":   func(r Roster) { a := r[1]; a.Signature = r[2].Signature; r[1] = a },
		"another round":         replayed(func(t *Params) { t.Round++ }),
		"another session":       replayed(func(t *Params) { t.Session[0]++ }),
		"another threshold":     replayed(func(t *Params) { t.Threshold++ }),
		"other clients":         replayed(func(t *Params) { t.Clients++ }),
		"another run":           replayed(func(t *Params) { t.Context[0]++ }),
		"a client's for others": func(r Roster) { a := s.signed(2, r[1].Keys); r[1] = a },
	} {
		bad := maps.Clone(r)
		change(bad)
		if _, err := c.Share(bad); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := c.Share(r); err != nil {
		t.Error(err)
	}

	first, peers := s.clients[1], s.peers[1]
	r, err = s.server.Roster()
	goldentest.NoError(t, err)
	if _, err := first.Share(r); err != nil || len(peers) != 4 {
		t.Fatalf("%v, %d keys seen", err, len(peers))
	}
	s.terms.Session[0]++
	second, err := NewClient(1, s.terms, s.who, peers, rand.Reader)
	goldentest.NoError(t, err)
	again := Roster{1: s.signed(1, second.keys()), 0: forged(0), 2: s.signed(2, unknownKeys())}
	_, err = second.Share(again)
	says(t, err, "client 0 sent the key")
}

// With different questions a server could open the sum of 2 of 9 clients with a threshold of 5: it reports each of the
// 7 others as dropped out to 5 clients; each client is asked for at most 4 pairwise keys, and for the own masks of 5.
// The test first shows that this works without signatures; with them no client reveals a share.
func TestDifferentQuestions(t *testing.T) {
	ids := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
	s := newSession(t, 5, 4, 4, ids...)
	r, err := s.join()
	goldentest.NoError(t, err)
	in, err := s.deal(r)
	goldentest.NoError(t, err)
	senders, err := s.exclude(in)
	goldentest.NoError(t, err)
	if _, err := s.add(senders); err != nil {
		t.Fatal(err)
	}
	question := func(id int) (q UnmaskRequest) {
		for v := range 7 {
			gone := id == 0 && v < 4 || id == 1 && v >= 4
			for next := 1; next <= 4 && id >= 2; next++ {
				gone = gone || (id-2+next)%7 == v
			}
			if gone {
				q.Dropped = append(q.Dropped, v+2)
			} else {
				q.Survivors = append(q.Survivors, v+2)
			}
		}
		q.Survivors = append([]int{0, 1}, q.Survivors...)
		return q
	}
	signed, shares := Signatures{}, map[int]map[int][]byte{} // shares of the seeds of 0 and 1, and of others' keys
	for _, id := range ids {
		c := s.clients[id]
		signed[id], err = c.Agree(question(id))
		goldentest.NoError(t, err)
		for _, which := range append([]int{0, 1}, question(id).Dropped...) {
			if shares[which] == nil {
				shares[which] = map[int][]byte{}
			}
			shares[which][id] = map[bool]map[int][]byte{true: c.seedShares, false: c.pairShares}[which < 2][which]
		}
	}
	sum := make([]uint64, 4)
	for which := range 9 {
		from := slices.Sorted(maps.Keys(shares[which]))
		x, err := newReconstruction(from[:5]).secret(func(client int) []byte { return shares[which][client] })
		goldentest.NoError(t, err)
		if which < 2 {
			s.terms.Ring.add(sum, s.masked[which])
			s.terms.Ring.addMask(sum, ownMask(x, s.terms.Session, which), true)
			continue
		}
		for one := range 2 {
			public := r[one].Pair
			shared, err := agree(x, public[:])
			goldentest.NoError(t, err)
			s.terms.Ring.addMask(sum, pairMask(shared, s.terms.Session, s.server.view(), which, one), which > one)
		}
	}
	for i := range sum {
		if want := (s.values[0][i] + s.values[1][i]) & s.terms.Ring.mask(); sum[i] != want {
			t.Fatalf("the attack gives %d, not the sum %d of two clients", sum[i], want)
		}
	}
	for _, id := range ids {
		_, err := s.clients[id].Reveal(signed)
		says(t, err, "did not sign this client's view")
	}
}

// A client with other parameters than the rest has masks that do not cancel, so parameters without a gradient for the
// rest reveal nothing of it (Pasquini et al. 2022). The same holds for a client with another roster.
func TestDifferentViews(t *testing.T) {
	for _, what := range []string{"parameters", "roster", "senders"} {
		s := newSession(t, 3, 4, 4, 0, 1, 2, 3, 4)
		r, err := s.join()
		goldentest.NoError(t, err)
		own := maps.Clone(r)
		if what == "roster" {
			delete(own, 4)
		}
		s.each(share, func(id int, c *Client) error {
			roster := r
			if id == 0 {
				roster = own
			}
			e, err := c.Share(roster)
			if err != nil {
				return err
			}
			if id == 0 && what == "roster" { // the server invents the missing data
				s.server.encrypted[0] = e
				return nil
			}
			return s.server.Deal(id, e)
		})
		in, err := s.server.Inboxes()
		goldentest.NoError(t, err)
		if what == "roster" {
			delete(in[0], 4)
			delete(in[4], 0)
		}
		senders, err := s.exclude(in)
		goldentest.NoError(t, err)
		model, told := s.model, senders
		switch what {
		case "parameters":
			model[0]++
		default:
			told = []int{0, 1, 2, 3}
		}
		for _, id := range []int{0, 1, 2, 3} {
			m, to := s.model, senders
			if id == 0 {
				m, to = model, told
			}
			y, err := s.clients[id].Mask(to, m, s.values[id])
			if err == nil {
				err = s.server.Add(id, y)
			}
			goldentest.NoError(t, err)
		}
		q, err := s.server.Unmask()
		goldentest.NoError(t, err)
		s.drop[4] = mask
		s.each(agreement, func(id int, c *Client) error {
			b, err := c.Agree(q)
			if id == 0 {
				if err == nil && s.server.Agree(id, b) == nil {
					t.Errorf("%s: a client that was told something else agrees with the others", what)
				}
				return nil
			}
			if err != nil {
				return err
			}
			return s.server.Agree(id, b)
		})
		signed, err := s.server.Signatures()
		goldentest.NoError(t, err)
		s.drop[0] = reveal
		sum, _, err := s.answer(signed)
		goldentest.NoError(t, err)
		for i := range sum {
			want := uint64(0)
			for id := range 4 {
				want += s.values[id][i]
			}
			if sum[i] == want&s.terms.Ring.mask() {
				t.Errorf("%s: number %d came out", what, i)
			}
		}
	}
}

// Clients and server, restarted at any step, continue with the same messages; different ones are refused as before.
func TestRestarts(t *testing.T) {
	s := newSession(t, 3, 4, 4, 0, 1, 2, 3, 4)
	all := func(server bool) {
		for id := range s.clients {
			s.restart(id)
		}
		if server {
			s.resume()
		}
	}
	r, err := s.join()
	goldentest.NoError(t, err)
	first, err := s.clients[0].Advertise()
	goldentest.NoError(t, err)
	all(true)
	if again, err := s.clients[0].Advertise(); err != nil || !bytes.Equal(again.Encode(), first.Encode()) {
		t.Errorf("other keys after a restart, %v", err)
	}
	if _, err := s.deal(r); err != nil {
		t.Fatal(err)
	}
	sent := s.clients[0].state.Sent
	all(true)
	in, err := s.server.Inboxes()
	goldentest.NoError(t, err)
	if e, err := s.clients[0].Share(r); err != nil || !bytes.Equal(e.Encode(), sent) {
		t.Errorf("other shares after a restart, %v", err)
	}
	delete(r, 4)
	_, err = s.clients[0].Share(r)
	says(t, err, "accepted another roster")
	senders, err := s.exclude(in)
	goldentest.NoError(t, err)
	all(true)
	if out, err := s.clients[0].Check(in[0]); err != nil || len(out) > 0 {
		t.Errorf("other complaints after a restart: %v, %v", out, err)
	}
	known := s.peers[0][1]
	s.peers[0][1] = nil // as if its certificate had lapsed, nothing that it signed verifies any more
	if s.restart(0); s.clients[0].seedShares[1] == nil {
		t.Error("after a restart a client has no share of a dealer that it verified before")
	}
	s.peers[0][1] = known
	if again := s.server.Senders(); !slices.Equal(again, senders) {
		t.Errorf("other senders after a restart: %v", again)
	}
	q, err := s.add(senders)
	goldentest.NoError(t, err)
	all(true)
	if y, err := s.clients[0].Mask(senders, s.model, make([]uint64, 4)); err != nil || !slices.Equal(y, s.masked[0]) {
		t.Errorf("another vector after a restart, %v", err)
	}
	_, err = s.clients[0].Mask(senders, [32]byte{1}, make([]uint64, 4))
	says(t, err, "made from other parameters")
	signed, err := s.agree(q)
	goldentest.NoError(t, err)
	all(true)
	if b, err := s.clients[0].Agree(q); err != nil || !bytes.Equal(b, signed[0]) {
		t.Errorf("another signature after a restart, %v", err)
	}
	_, err = s.clients[0].Agree(UnmaskRequest{[]int{0, 1, 2}, []int{3, 4}})
	says(t, err, "agreed to another question")
	signed, err = s.agree(q)
	goldentest.NoError(t, err)
	all(false)
	s.check(s.answer(signed))
}
