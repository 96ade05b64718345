package transporttest

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// Key signs the messages of tests.
var Key = certs.Signer{Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}

// Verifier knows what Key signed.
var Verifier = certs.Verifier{Key: Key.Key.Public()}

// Proof is the proof of Key.
func Proof(t testing.TB) certs.Proof {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(Key.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return certs.Proof{Key: der}
}

// Pack returns a message signed by Key.
func Pack(t testing.TB, what string, header any, body []byte) []byte {
	t.Helper()
	b, err := protocol.Pack(Key, what, header, body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Read decodes a message signed by Key.
func Read(what string, b []byte, header any) ([]byte, error) {
	return protocol.Unpack(Verifier, what, b, header)
}

// Signed returns a message of any bytes signed by Key. Otherwise fuzzing would not get past the signature.
func Signed(what string, b []byte) []byte {
	if f, err := protocol.Split(what, b); err == nil {
		if out, err := protocol.Pack(Key, what, json.RawMessage(f.Header), f.Body); err == nil {
			return out
		}
	}
	return b
}

// Forge returns a message of any header and body, signed by Key.
func Forge(t testing.TB, what string, header, body []byte) []byte {
	t.Helper()
	if len(header) > protocol.HeaderLimit(what) {
		t.Skip()
	}
	s, err := Key.Sign(protocol.SigningDigest(what, header))
	if err != nil {
		t.Fatal(err)
	}
	b := binary.LittleEndian.AppendUint32([]byte{'P', 'F', 'L', protocol.Version}, uint32(len(header)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return slices.Concat(b, header, s, body)
}

// Text returns an encoded header.
func Text(t testing.TB, header any) []byte {
	t.Helper()
	b, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// EndInstruction returns the instruction that ends a run, signed by Key.
func EndInstruction(run string, client, of int) ([]byte, error) {
	o := protocol.Instruction{Run: run, Try: subjects.NewID(), Seq: 1 << 62, Kind: protocol.EndKind, Client: client,
		Total: of}
	o.SetBody(nil)
	o.ID = o.Identity()
	return protocol.Pack(Key, protocol.InstructionMessage, o, nil)
}
