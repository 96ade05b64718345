package secagg

import (
	"crypto/rand"
	"slices"
	"testing"
)

// A second advertisement of a client is refused, and so is one with a key of another client.
func TestTakenKeys(t *testing.T) {
	s := newSession(t, 2, 1, 4, 0, 1)
	k, err := s.clients[0].Advertise()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.server.Join(0, k); err != nil {
		t.Fatal(err)
	}
	says(t, s.server.Join(0, Joining{}), "client 0 advertised twice")
	says(t, s.server.Join(1, k), "client 1 has a key of client 0")
}

// FuzzMessages checks that any bytes are refused, or decoded to a message with the same encoding.
func FuzzMessages(f *testing.F) {
	s := newSession(f, 2, 1, 4, 0, 1, 2)
	r, err := s.join()
	if err != nil {
		f.Fatal(err)
	}
	in, err := s.deal(r)
	if err != nil {
		f.Fatal(err)
	}
	joining, err := s.clients[0].Advertise()
	if err != nil {
		f.Fatal(err)
	}
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
		back := [][]byte{}
		if a, err := DecodeAdvert(b); err == nil {
			back = append(back, a.Encode())
		}
		if j, err := DecodeJoining(b); err == nil {
			back = append(back, j.Encode())
		}
		if m, err := DecodeSignatures(b); err == nil {
			back = append(back, m.Encode())
		}
		if m, err := DecodeRoster(b); err == nil {
			back = append(back, m.Encode())
		}
		if m, err := DecodeEncryptedShares(b); err == nil {
			back = append(back, m.Encode())
		}
		if m, err := DecodeComplaints(b); err == nil {
			back = append(back, m.Encode())
		}
		if m, err := DecodeClients(b); err == nil {
			back = append(back, EncodeClients(m))
		}
		if m, err := DecodeShares(b); err == nil {
			back = append(back, m.Encode())
		}
		if m, err := DecodeUnmaskRequest(b); err == nil {
			back = append(back, m.Encode())
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
		if err != nil {
			t.Fatal(err)
		}
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
		return map[int][]byte{1: five,
			4: eight}[id]
	})
	if err != nil || !got.IsEqual(field.NewScalar().SetUint64(3)) {
		t.Errorf("%v, %v; want 3", got, err)
	}
}
