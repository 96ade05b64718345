package attack

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// underSums are the flags of a server of three clients whose sums hold two.
var underSums = []string{"--set", "secure_aggregation.threshold=0.6"}

// packed changes the bytes of a message of secure aggregation. Eight bytes are packed into one number, after their
// count.
func packed(up tensor.Map, name string, change func(b []byte)) {
	x := up["guard/"+name].Clone()
	b := make([]byte, 0, 8*x.Len())
	for _, v := range x.Ints[1:] {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	change(b[:x.Ints[0]])
	for i := range x.Ints[1:] {
		x.Ints[1+i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	up["guard/"+name] = x
}

func noise(b []byte) {
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
}

// A vector has 4 x 512 numbers of 32 bits times up to 65536 examples, so that sums of three need seven bytes each.
// After them come weight, loss and the number of clipped numbers.
const (
	vectorNumbers = 4 * 512
	ringBytes     = 7
	largestNumber = 10 * (1<<31 - 1) // which a client of 10 examples may send for a move by 64
)

// addTo adds to a number of a masked vector, and therefore to that of the sum.
func addTo(b []byte, element int, v uint64) {
	var x [8]byte
	at := b[element*ringBytes : (element+1)*ringBytes]
	copy(x[:], at)
	binary.LittleEndian.PutUint64(x[:], binary.LittleEndian.Uint64(x[:])+v)
	copy(at, x[:])
}

// vector is a lie about the vector of a client.
func vector(change func(b []byte)) func(o message.Instruction, up tensor.Map) {
	return func(o message.Instruction, up tensor.Map) {
		if o.Kind == message.Train {
			packed(up, "masked", change)
		}
	}
}

// spoilt are lies about a vector that only the sum reveals.
var spoilt = map[string]func(o message.Instruction, up tensor.Map){
	"a garbage vector":          vector(noise),
	"the weight 2^30":           vector(func(b []byte) { addTo(b, vectorNumbers, 1<<30) }),
	"a loss beyond all":         vector(func(b []byte) { addTo(b, vectorNumbers+1, 1<<40) }),
	"a number beyond all three": vector(func(b []byte) { addTo(b, 7, 3*largestNumber) }),
	"numbers that move the mean too far": vector(func(b []byte) {
		for i := range vectorNumbers { // by 60 sqrt(2048); 50 sqrt(2048) is accepted
			addTo(b, i, 28*largestNumber/10)
		}
	}),
}

// A client with an impossible vector spoils its rounds: each is skipped, the parameters stay, no client is named, and
// the run completes. Rounds in which it does not lie count all clients.
func TestSpoiltSums(t *testing.T) {
	for name, lie := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 4, underSums...)
			s.joins(1, 2)
			s.background(part{lies: func(o message.Instruction, up tensor.Map) {
				if o.Round < 2 {
					lie(o, up)
				}
			}})
			records := s.ends()
			counted(t, records[2:], 0, 1, 2)
			for _, r := range records[:2] {
				if text := strings.Join(r.Warnings, "; "); len(r.Clients) > 0 || len(r.Refused) > 0 ||
					!strings.Contains(text, "is not used") {
					t.Errorf("round %d counts %v, refuses %v and says %q", r.Round+1, r.Clients, r.Refused, text)
				}
			}
			s.learned(2)
		})
	}
}

// The terms of join state what a single lying client can do: of three clients with equal weights, one that sends twice
// the permitted value moves the mean by two thirds of twice the clip of 64. That is above what it could move alone, a
// third, and below the clip.
func TestBoundOfSums(t *testing.T) {
	t.Parallel()
	s := serve(t, 1, underSums...)
	s.joins(1, 2)
	s.background(part{lies: vector(func(b []byte) { addTo(b, 0, 2*largestNumber) })})
	counted(t, s.ends(), 0, 1, 2)
	m := orttest.Golden(t, s.at("out", record.PromptsFile))
	ctx := m["shared/ctx"].Data
	if d := float64(ctx[0]) - 1 - 2./3*64; !(math.Abs(d) < 0.2) { // initial values have a standard deviation of 0.02
		t.Errorf("the first number is %v", ctx[0])
	}
}

// signsLies signs encrypted shares as if their content were zeros, or keys with another seed.
type signsLies struct {
	secagg.Identity
	shares bool
}

func (x signsLies) Sign(client int, text []byte) ([]byte, error) {
	text = bytes.Clone(text)
	switch {
	case x.shares && bytes.HasPrefix(text, []byte("promptfed secagg 3 share\n")):
		clear(text[len(text)-sealedBytes:])
	case !x.shares && bytes.HasPrefix(text, []byte("promptfed secagg 3 keys\n")):
		otherSeed(text[len(text)-keysBytes:])
	}
	return x.Identity.Sign(client, text)
}

// otherSeed replaces the commitment to a client's seed by one to another number, that of its pairwise key. It returns
// the original.
func otherSeed(keys []byte) []byte {
	seed := bytes.Clone(keys[64:])
	copy(keys[64:], keys[32:64])
	return seed
}

// Sizes of keys (two public keys and a commitment) and of an encrypted share (two commitments, and two shares with
// their authentication tag).
const (
	keysBytes   = 3 * 32
	pointBytes  = 2 * 32
	sealedBytes = 2*32 + 16
)

// encrypted shares changes the content of encrypted shares.
func encryptedShares(change func(sealed []byte)) func(o message.Instruction, up tensor.Map) {
	return func(o message.Instruction, up tensor.Map) {
		if o.Statistic != "secagg-shares" {
			return
		}
		packed(up, "shares", func(b []byte) {
			for b = b[4:]; len(b) > 0; {
				size := int(binary.LittleEndian.Uint32(b[4:]))
				if one := b[8 : 8+size]; size > pointBytes {
					change(one[pointBytes : pointBytes+sealedBytes])
				}
				b = b[8+size:]
			}
		})
	}
}

// A client that lies before vectors are in the sum is named and left out of the round, and the others count: with
// encrypted shares that nobody can open, signed or not; with commitments to no shares; with a complaint about a good
// encrypted share; with invalid keys; with a vector that is too short. Shares of a secret other than the committed one
// are found at the end of the first such round, which is skipped. A client that sends false shares at the end is named
// too, and its vector counts.
func TestNamedLiars(t *testing.T) {
	var seed []byte
	for name, c := range map[string]struct {
		lies   func(o message.Instruction, up tensor.Map)
		sees   func(o message.Instruction)
		signs  func(own secagg.Identity) secagg.Identity
		say    string
		counts bool
		lost   int // rounds until it is found
	}{
		"shares that nobody can open": {lies: encryptedShares(noise), say: "its shares for client 1: "},
		"signed shares that nobody can open": {lies: encryptedShares(func(b []byte) { clear(b) }),
			signs: func(own secagg.Identity) secagg.Identity { return signsLies{own, true} },
			say:   "its shares for client 1: it was not encrypted for this client"},
		"commitments to other shares": {lies: func(o message.Instruction, up tensor.Map) {
			if o.Statistic == "secagg-shares" { // of the encrypted share to client 1, the second
				packed(up, "shares", func(b []byte) { copy(b[84:84+32], b[84+32:]) })
			}
		}, say: "its shares for client 1: the signature"},
		"shares of another secret": {lies: func(o message.Instruction, up tensor.Map) {
			if o.Statistic == "secagg-keys" {
				packed(up, "keys", func(b []byte) { seed = otherSeed(b[4 : 4+keysBytes]) })
			}
		}, sees: func(o message.Instruction) {
			if o.Statistic == "secagg-shares" { // its own guard would not accept the roster
				packed(o.PerClient[0], "roster", func(b []byte) { copy(b[12+64:12+keysBytes], seed) })
			}
		}, signs: func(own secagg.Identity) secagg.Identity { return signsLies{own, false} },
			say: "its commitments do not belong to shares of its secrets", lost: 1},
		"a complaint": {lies: func(o message.Instruction, up tensor.Map) {
			if o.Statistic == "secagg-check" { // one, about client 1, of no bytes
				up["guard/complaints"] = tensor.OfInts([]int64{12, 1 | 1<<32, 0}, 3)
			}
		}, say: "it complains about the signature of client 1, which is correct"},
		"keys that are none": {lies: func(o message.Instruction, up tensor.Map) {
			if o.Statistic == "secagg-keys" {
				packed(up, "keys", func(b []byte) { copy(b[4:4+32], bytes.Repeat([]byte{255}, 32)) })
			}
		}, say: "it is not a key"},
		"a short vector": {lies: func(o message.Instruction, up tensor.Map) {
			if o.Kind == message.Train {
				up["guard/masked"] = tensor.OfInts([]int64{ringBytes, 7}, 2)
			}
		}, say: "masked is int64[2] and must be int64[1796]"},
		"false shares": {lies: func(o message.Instruction, up tensor.Map) {
			if o.Statistic == "secagg-reveal" {
				packed(up, "reveal", func(b []byte) { copy(b[8:8+32], bytes.Repeat([]byte{1}, 32)) })
			}
		}, say: "it gave a false share of client 0", counts: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 3, underSums...)
			s.joins(1, 2)
			s.background(part{lies: c.lies, signs: c.signs, sees: c.sees})
			records := s.ends()
			counted(t, records[:c.lost])
			if c.counts {
				counted(t, records[c.lost:], 0, 1, 2)
			} else {
				counted(t, records[c.lost:], 1, 2)
			}
			for _, r := range records {
				said := false
				for _, x := range r.Refused {
					said = said || strings.Contains(x.Reason, c.say)
				}
				if !said || slices.ContainsFunc(r.Refused, func(x message.Refusal) bool { return x.Client != 0 }) {
					t.Errorf("the record of round %d refuses %v; want %q", r.Round, r.Refused, c.say)
				}
			}
			s.learned(float64(3 - c.lost))
		})
	}
}

// A server that is killed in a round with a spoilt sum or false shares continues with --resume: with the liar and,
// after it becomes honest, without.
func TestResumedSums(t *testing.T) {
	for name, lie := range map[string]func(o message.Instruction, up tensor.Map){
		"a garbage vector": spoilt["a garbage vector"], "shares": encryptedShares(noise),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 12, underSums...)
			s.hold(3)
			s.joins(1, 2)
			var honest atomic.Bool
			s.background(part{lies: func(o message.Instruction, up tensor.Map) {
				if !honest.Load() {
					lie(o, up)
				}
			}})
			for range 2 {
				done := len(s.records())
				s.hold(done + 3)
				s.recorded(done + 2)
				s.Kill()
				s.start("--resume")
			}
			honest.Store(true)
			s.hold(0)
			records := s.ends()
			counted(t, records[len(records)-2:], 0, 1, 2)
		})
	}
}

// If the configuration says so, the clients of impossible sums are split into groups: of eight with sums of two and
// more, the four in the group of the liar are left out, and the others count.
func TestSpoiltGroups(t *testing.T) {
	t.Parallel()
	s := serve(t, 6, append([]string{"--set", "partition.clients=8", "--set", "secure_aggregation.least=2"},
		underSums...)...)
	s.joins(1, 2, 3, 4, 5, 6, 7)
	s.background(part{lies: spoilt["a garbage vector"]})
	records := s.ends()
	if len(records[0].Clients) > 0 {
		t.Errorf("round 1 counts %v", records[0].Clients)
	}
	for _, r := range records[1:] {
		if len(r.Clients) != 4 || r.Clients[0] == 0 || len(r.Refused) > 0 {
			t.Errorf("round %d counts %v and refuses %v", r.Round+1, r.Clients, r.Refused)
		}
	}
	s.learned(5)
}
