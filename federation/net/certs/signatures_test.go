package certs_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/goldentest"
)

var _ secagg.Identity = (*certs.Signatures)(nil)

// signing is what a client and a message of it show.
func signing(t testing.TB, who certs.Identity, message string) (s *certs.Signatures, proof, signature []byte) {
	t.Helper()
	s, err := who.Signatures(t.TempDir())
	if err == nil {
		proof, err = s.Proof(0)
	}
	if err == nil {
		signature, err = s.Sign(0, []byte(message))
	}
	goldentest.NoError(t, err)
	return s, proof, signature
}

// A client knows another by a certificate of the same authority with its name, or by its key where there are none; what
// that did not sign is refused. What the server accepts at the end of a certificate, clients accept a moment later.
func TestSignatures(t *testing.T) {
	ca, other := nettest.NewAuthority(t), nettest.NewAuthority(t)
	one, _, _ := signing(t, ca.Identity("client-1"), "")
	_, proof, signature := signing(t, ca.Identity("client-2"), "keys")
	_, forged, byForged := signing(t, other.Identity("client-2"), "keys")
	_, bare, byBare := signing(t, certs.Identity{}, "keys")
	if !one.Certified() || one.Verify(2, proof, []byte("keys"), signature) != nil {
		t.Error("a certificate's signature is refused")
	}
	for words, c := range map[string]struct {
		client           int
		proof, signature []byte
		message          string
	}{
		"the signature does not belong":                {2, proof, signature, "others"},
		"the certificate belongs to \"client-2\", not": {1, proof, signature, "keys"},
		"the certificate of client-2: x509":            {2, forged, byForged, "keys"},
		"client-2 sent no certificate":                 {2, bare, byBare, "keys"},
		"client-3 sent no certificate":                 {3, nil, nil, "keys"},
	} {
		goldentest.WantError(t, one.Verify(c.client, c.proof, []byte(c.message), c.signature), words)
	}
	issuer := newIssuer(t)
	reader, _, _ := signing(t, issuer.named(t, "client-1"), "")
	server, err := issuer.named(t, "server").Signatures("")
	goldentest.NoError(t, err)
	ended := issuer.identity(t, "other", 8, time.Now().Add(-2*time.Hour))
	for ago, want := range map[time.Duration][2]string{-time.Minute: {}, time.Minute: {"expired", ""},
		2 * time.Hour: {"expired", "expired"}} {
		_, proof, signature := signing(t, issuer.identity(t, "client-2", 7, time.Now().Add(-ago)), "keys")
		_, beside, _ := signing(t, ended, "") // a certificate that proves nothing, and whose end is anybody's choice
		for _, p := range [][]byte{proof, slices.Concat(proof, beside)} {
			says(t, ago.String(), server.Verify(2, p, []byte("keys"), signature), want[0])
			says(t, ago.String(), reader.Verify(2, p, []byte("keys"), signature), want[1])
		}
	}
	free, _, _ := signing(t, certs.Identity{}, "")
	if free.Certified() || free.Verify(7, bare, []byte("keys"), byBare) != nil {
		t.Error("a key's signature is refused")
	}
	if err := free.Verify(7, bare, []byte("other keys"), byBare); err == nil {
		t.Error("a signature of something else is taken")
	}
}

// Without a folder a key is new each time, and nothing is written where the program stands; with one it stays.
func TestWithKey(t *testing.T) {
	t.Chdir(t.TempDir())
	public := func(dir string) string {
		i, err := certs.Identity{}.WithKey(dir)
		goldentest.NoError(t, err)
		p, err := i.Proof()
		goldentest.NoError(t, err)
		return string(p.Key)
	}
	if one, other := public(""), public(""); one == other {
		t.Error("two identities have one key")
	}
	if list, err := os.ReadDir("."); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	dir := t.TempDir()
	if first, then := public(dir), public(dir); first != then {
		t.Error("the key of a folder changes")
	}
}

// FuzzProof: any bytes as a proof or a signature are refused, but for those that a client made.
func FuzzProof(f *testing.F) {
	ca := nettest.NewAuthority(f)
	who, proof, signature := signing(f, ca.Identity("client-1"), "keys")
	free, bare, byBare := signing(f, certs.Identity{}, "keys")
	f.Add(proof, signature)
	f.Add(bare, byBare)
	f.Add(slices.Concat(proof, proof), signature)
	f.Add([]byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, p, s []byte) {
		if who.Verify(1, p, []byte("keys"), s) == nil && !slices.Equal(p[:min(len(p), len(proof))], proof) {
			t.Errorf("%x is taken for the proof of client 1", p)
		}
		if free.Verify(1, p, []byte("keys"), s) == nil && !slices.Equal(p, bare) {
			t.Errorf("%x is taken for a key", p)
		}
	})
}
