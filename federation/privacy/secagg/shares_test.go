package secagg

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
)

// A second advertisement of a client is refused, and so is one with a key of another client, or one key for two
// purposes: the others would refuse the roster.
func TestTakenKeys(t *testing.T) {
	s := newSession(t, 2, 1, 4, 0, 1)
	k, err := s.clients[0].Advertise()
	goldentest.NoError(t, err)
	goldentest.NoError(t, s.server.Join(0, k))
	says(t, s.server.Join(0, Joining{}), "client 0 advertised twice")
	says(t, s.server.Join(1, k), "client 1 has a key of client 0")
	own, err := s.clients[1].Advertise()
	goldentest.NoError(t, err)
	twice := own
	twice.Pair = own.Envelope
	says(t, s.server.Join(1, twice), "client 1 has one key for two purposes")
	for _, take := range []func(j *Joining){func(j *Joining) { j.Envelope = k.Envelope },
		func(j *Joining) { j.Pair = k.Pair }, func(j *Joining) { j.Envelope = k.Pair },
		func(j *Joining) { j.Pair = k.Envelope }} {
		bad := own
		take(&bad)
		says(t, s.server.Join(1, bad), "client 1 has a key of client 0")
	}
	if err := s.server.Join(1, own); err != nil {
		t.Error(err)
	}
	few := newSession(t, 2, 1, 4, 0, 1, 2)
	few.server.params.Clients = 2
	says(t, few.server.Join(2, own), "client 2 advertised twice, or its number is invalid")
	says(t, few.server.Join(-1, own), "client -1 advertised twice, or its number is invalid")
}

// A second session of the same clients has a roster without their proofs, unless a client does not know one.
func TestRosterOmitsKnownProofs(t *testing.T) {
	first := newSession(t, 2, 1, 4, 0, 1, 2)
	if _, _, err := first.run(); err != nil {
		t.Fatal(err)
	}
	for forgets, want := range map[int]string{-1: "[0 0 0]", 1: "[32 0 32]"} { // client 1 forgets 0 and 2
		s := newSession(t, 2, 1, 4, 0, 1, 2)
		s.who, s.server.who = first.who, first.who
		for id := range s.clients {
			s.peers[id] = maps.Clone(first.peers[id])
			if id == forgets {
				s.peers[id] = Peers{}
			}
			var err error
			s.clients[id], err = NewClient(id, s.terms, s.who, s.peers[id], rand.Reader)
			goldentest.NoError(t, err)
		}
		r, err := s.join()
		goldentest.NoError(t, err)
		var sizes []int
		for _, id := range slices.Sorted(maps.Keys(r)) {
			sizes = append(sizes, len(r[id].Proof))
		}
		if fmt.Sprint(sizes) != want {
			t.Errorf("client %d forgets: proofs of %v bytes, want %s", forgets, sizes, want)
		}
		if _, err := s.deal(r); err != nil {
			t.Error(err)
		}
	}
}

// The mask of two clients has a key of their secret, the session, the view and both numbers, whoever derives it.
func TestPairMaskIsOfBothClients(t *testing.T) {
	s, v := Session{1}, view{2}
	want := derive(append([]byte{7}, v[:]...), s, "pair mask", 2, 5)
	if a, b := pairMask([]byte{7}, s, v, 2, 5), pairMask([]byte{7}, s, v, 5, 2); !bytes.Equal(a, want) ||
		!bytes.Equal(b, want) {
		t.Errorf("%x and %x, want %x", a, b, want)
	}
}

// The largest message of each kind has the size that Max states, is read, and none is read with one byte more or less.
func TestLargestMessages(t *testing.T) {
	many := func(n int) []byte { return make([]byte, n) }
	advert := Advert{Signature: many(maxSignature), Proof: many(maxProof)}
	known, encrypted := map[int][]byte{}, EncryptedShares{}
	complaints, shares := Complaints{}, Shares{}
	for id := range 3 {
		known[id], shares[id] = many(fingerprintSize), many(secretSize)
		encrypted[id] = EncryptedShare{Sealed: many(sealedSize), Signature: many(maxSignature)}
		complaints[id] = Complaint{many(keySize), many(proofSize)}
	}
	for name, c := range map[string]struct {
		b      []byte
		most   int
		decode func([]byte) error
	}{
		"joining": {Joining{advert, known}.Encode(), MaxJoiningSize(3),
			func(b []byte) error { _, err := DecodeJoining(b); return err }},
		"encrypted shares": {encrypted.Encode(), MaxEncryptedSharesSize(3),
			func(b []byte) error { _, err := DecodeEncryptedShares(b); return err }},
		"complaints": {complaints.Encode(), MaxComplaintsSize(3),
			func(b []byte) error { _, err := DecodeComplaints(b); return err }},
		"shares": {shares.Encode(), MaxSharesSize(3), func(b []byte) error { _, err := DecodeShares(b); return err }},
		"advertisement": {advert.Encode(), 3*keySize + 2 + maxSignature + maxProof,
			func(b []byte) error { _, err := DecodeAdvert(b); return err }},
	} {
		if len(c.b) != c.most || c.decode(c.b) != nil {
			t.Errorf("%s: %d bytes, at most %d; %v", name, len(c.b), c.most, c.decode(c.b))
		}
		says(t, c.decode(append(slices.Clone(c.b), 0)), "the message has the wrong length")
		if name != "advertisement" { // a shorter proof is one too
			says(t, c.decode(c.b[:len(c.b)-1]), "the message has the wrong length")
		}
	}
	if a, err := DecodeAdvert(many(3*keySize + 2)); err != nil || len(a.Signature)+len(a.Proof) != 0 {
		t.Errorf("an advertisement without a signature: %+v, %v", a, err)
	}
	advert.Signature = many(maxSignature + 1)
	_, err := DecodeAdvert(advert.Encode())
	says(t, err, "the message has the wrong length")
	for _, b := range [][]byte{{}, {0, 0, 0}, many(3*keySize + 1)} {
		_, err := DecodeAdvert(b)
		says(t, err, "the message has the wrong length")
		_, err = DecodeJoining(b[:min(3, len(b))])
		says(t, err, "the message has the wrong length")
	}
	_, err = DecodeJoining([]byte{1, 0, 0, 0})
	says(t, err, "the message has the wrong length")
	encrypted[0] = EncryptedShare{Sealed: many(sealedSize - 1)}
	_, err = DecodeEncryptedShares(encrypted.Encode())
	says(t, err, "client 0: the message has the wrong length")
	if e, err := DecodeEncryptedShares(EncryptedShares{0: {}, 1: {Sealed: many(sealedSize)}}.Encode()); err != nil ||
		e[0].Sealed != nil || len(e[1].Sealed) != sealedSize || len(e[1].Signature) != 0 {
		t.Errorf("%v, %v", e, err)
	}
}

// Clients in a message ascend, below the largest number, and are as many as the message says.
func TestClientsAscend(t *testing.T) {
	for _, list := range [][]int{{1, 1}, {2, 1}, {0, maxID}} {
		_, err := DecodeClients(EncodeClients(list))
		says(t, err, fmt.Sprintf("client %d follows client %d; numbers must ascend below 1073741824", list[1], list[0]))
	}
	if got, err := DecodeClients(EncodeClients([]int{0, maxID - 1})); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	_, err := DecodeClients(EncodeClients([]int{1, 2})[:8])
	says(t, err, "the message has the wrong length")
	_, err = DecodeUnmaskRequest(append(EncodeClients([]int{1}), 0))
	says(t, err, "question: clients: the message has the wrong length")
}

func TestSharesAreElements(t *testing.T) {
	_, err := scalar(make([]byte, 31))
	says(t, err, "31 bytes; it must have 32")
	_, err = scalar(bytes.Repeat([]byte{255}, 32))
	says(t, err, "it is not an element of the field")
}

// Progress has each part from the step on in which it is complete, and a session without any begins again.
func TestProgress(t *testing.T) {
	s := newSession(t, 2, 1, 4, 0, 1)
	parts := func() string {
		p := s.server.Progress()
		return fmt.Sprint(p.Roster != nil, p.EncryptedShares != nil, p.Senders != nil, p.Survivors != nil, p.Sum != nil)
	}
	want := func(text string) {
		t.Helper()
		if got := parts(); got != text {
			t.Errorf("after %d steps: %s, want %s", s.server.Finished(), got, text)
		}
		s.resume()
	}
	want("false false false false false")
	r, err := s.join()
	goldentest.NoError(t, err)
	want("true false false false false")
	inboxes, err := s.deal(r)
	goldentest.NoError(t, err)
	want("true true false false false")
	senders, err := s.exclude(inboxes)
	goldentest.NoError(t, err)
	want("true true true false false")
	if _, err := s.add(senders); err != nil {
		t.Fatal(err)
	}
	want("true true true true true")
	_, err = Resume(Progress{}, s.model, s.who, Peers{})
	says(t, err, "the threshold must be 2")
}

// A client refuses a saved state without its own shares, or with damaged keys.
func TestDamagedState(t *testing.T) {
	s := newSession(t, 2, 1, 4, 0, 1)
	r, err := s.join()
	goldentest.NoError(t, err)
	if _, err := s.clients[0].Share(r); err != nil {
		t.Fatal(err)
	}
	m := s.clients[0].State()
	m.Shares = m.Shares[:1]
	_, err = Restore(0, m, s.who, Peers{}, rand.Reader)
	says(t, err, "this client's saved state of the session is damaged: it has 1 shares of its own")
	m.Roster, m.Shares, m.Inbox = nil, nil, EncryptedShares{}.Encode()
	_, err = Restore(0, m, s.who, Peers{}, rand.Reader)
	says(t, err, "it has 0 shares of its own")
	m.Seed = m.Seed[1:]
	_, err = Restore(0, m, s.who, Peers{}, rand.Reader)
	says(t, err, "31 bytes; it must have 32")
}

// encoded returns the encoding of what was decoded; none on an error.
func encoded[T interface{ Encode() []byte }](decoded T, err error) [][]byte {
	if err != nil {
		return nil
	}
	return [][]byte{decoded.Encode()}
}

// FuzzMessages checks that any bytes are refused, or decoded to a message with the same encoding.
func FuzzMessages(f *testing.F) {
	s := newSession(f, 2, 1, 4, 0, 1, 2)
	r, err := s.join()
	goldentest.NoError(f, err)
	in, err := s.deal(r)
	goldentest.NoError(f, err)
	joining, err := s.clients[0].Advertise()
	goldentest.NoError(f, err)
	public := r[0].Envelope
	for _, b := range [][]byte{nil, append(public[:], make([]byte, proofSize)...), r.Encode(), r[0].Encode(),
		r[0].Keys.Encode(), joining.Encode(), in[0].Encode(),
		Complaints{1: {}, 2: {make([]byte, keySize), make([]byte, proofSize)}}.Encode(),
		UnmaskRequest{[]int{0, 2}, []int{1}}.Encode(),
		Shares{3: make([]byte, 32)}.Encode(),
		Signatures{1: make([]byte, 64), 2: nil}.Encode(), {255, 255, 255, 255}, {1, 0, 0, 0, 255, 255, 255, 255}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		back := slices.Concat(encoded(DecodeAdvert(b)), encoded(DecodeJoining(b)), encoded(DecodeSignatures(b)),
			encoded(DecodeRoster(b)), encoded(DecodeEncryptedShares(b)), encoded(DecodeComplaints(b)),
			encoded(DecodeShares(b)), encoded(DecodeUnmaskRequest(b)))
		if m, err := DecodeClients(b); err == nil {
			back = append(back, EncodeClients(m))
		}
		if len(b) >= keySize { // no complaint proves anything here
			if err := (Complaint{b[:keySize], b[keySize:]}).check(s.terms, public[:], public[:]); err == nil {
				t.Fatalf("%x is a proof", b)
			}
		}
		for w := 1; w <= 8; w++ {
			if v, err := (Ring{w}).Decode(b); err == nil {
				back = append(back, Ring{w}.Encode(v))
			}
		}
		for _, x := range back {
			if !slices.Equal(x, b) {
				t.Fatalf("%x comes back as %x", b, x)
			}
		}
	})
}

// Any 3 of 5 shares determine the secret, and 2 never do.
func TestShares(t *testing.T) {
	x := newSecret(rand.Reader)
	ids := []int{0, 1, 6, 40, 1 << 29}
	shares := x.split(rand.Reader, 3, ids)
	from := func(some []int) secret {
		got, err := newReconstruction(some).secret(func(id int) []byte { return shares[id].bytes() })
		goldentest.NoError(t, err)
		return got
	}
	for bits := range 1 << len(ids) {
		var some []int
		for i, id := range ids {
			if bits>>i&1 == 1 {
				some = append(some, id)
			}
		}
		if len(some) == 0 {
			continue
		}
		if got := from(some); got.IsEqual(x.Scalar) != (len(some) >= 3) {
			t.Errorf("shares of %v give the secret: %v", some, got.IsEqual(x.Scalar))
		}
	}
	// The line through the shares 5 of client 1 (place 2) and 8 of client 4 (place 5) is 3 + x: by hand.
	five, eight := secret{field.NewScalar().SetUint64(5)}.bytes(), secret{field.NewScalar().SetUint64(8)}.bytes()
	got, err := newReconstruction([]int{1, 4}).secret(func(id int) []byte {
		return map[int][]byte{1: five, 4: eight}[id]
	})
	if err != nil || !got.IsEqual(field.NewScalar().SetUint64(3)) {
		t.Errorf("%v, %v; want 3", got, err)
	}
}
