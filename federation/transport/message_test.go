package transport

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// prompts are tensors of the size that papers have: 16 tokens of width 512.
func prompts() tensor.Map { return tensor.Map{"shared/ctx": tensor.New(16, 512)} }

func anOrder(t testing.TB) (order, []byte) {
	t.Helper()
	body, err := wire.Encode(prompts())
	if err != nil {
		t.Fatal(err)
	}
	o := order{Run: NewID(), Try: NewID(), Kind: string(message.Train), Round: 49, Client: 9, Of: 10, Accepted: NewID(),
		Safe: NewID()}
	o.of(body)
	o.ID = o.identity()
	return o, body
}

func aReply(t testing.TB) (reply, []byte) {
	t.Helper()
	o, body := anOrder(t)
	r := reply{Run: o.Run, ID: o.ID, Try: o.Try, Client: 9, N: 1600, Loss: 1.2345678901234567, Steps: 50}
	r.of(body)
	return r, body
}

// testKey signs the messages of these tests.
var testKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// kindOf is what a header is one of.
func kindOf(header any) string {
	switch header.(type) {
	case order, *order:
		return orderMessage
	}
	return replyMessage
}

func mustPack(t testing.TB, header any, body []byte) []byte {
	t.Helper()
	b, err := pack(signer{testKey}, kindOf(header), header, body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// signed is a message of any bytes as one would send it who has the key: without that fuzzing would not get past the
// signature.
func signed(what string, b []byte) []byte {
	if f, err := split(what, b); err == nil {
		if out, err := pack(signer{testKey}, what, json.RawMessage(f.header), f.body); err == nil {
			return out
		}
	}
	return b
}

// reads reads a message of testKey.
func reads(b []byte, header any) ([]byte, error) {
	return unpack(verifier{key: testKey.Public()}, kindOf(header), b, header)
}

// Messages are at most 3 % larger than the tensors in them.
func TestOverhead(t *testing.T) {
	o, body := anOrder(t)
	r, _ := aReply(t)
	for what, header := range map[string]any{"order": o, "reply": r} {
		n, tensors := len(mustPack(t, header, body)), prompts().Bytes()
		t.Logf("%s of 16 x 512: %d bytes, %.2f %% above the %d of its tensors", what, n,
			100*float64(n-tensors)/float64(tensors), tensors)
		if float64(n) > 1.03*float64(tensors) {
			t.Errorf("%s: %d bytes for tensors of %d", what, n, tensors)
		}
	}
}

func TestMessagesComeBack(t *testing.T) {
	o, body := anOrder(t)
	var back order
	got, err := reads(mustPack(t, o, body), &back)
	if err != nil || back != o || !bytes.Equal(got, body) || back.check() != nil {
		t.Fatal(err, back)
	}
	if m, err := back.tensors(got); err != nil || m["shared/ctx"].Len() != 16*512 {
		t.Fatal(err)
	}
}

// Whatever is changed in an order, it is not taken for one.
func TestDamagedOrders(t *testing.T) {
	o, body := anOrder(t)
	whole := mustPack(t, o, body)
	read := func(b []byte) error {
		var h order
		rest, err := reads(b, &h)
		if err == nil {
			err = h.check()
		}
		if err == nil {
			_, err = h.tensors(rest)
		}
		return err
	}
	for i := 0; i < len(whole); i += 1 + i/400 {
		bent := bytes.Clone(whole)
		if bent[i] ^= 1 << (i % 8); read(bent) == nil {
			t.Errorf("byte %d was changed, and nobody saw it", i)
		}
		if read(whole[:i]) == nil {
			t.Errorf("%d of %d bytes are enough", i, len(whole))
		}
	}
	body[len(body)-1] ^= 1
	if err := read(mustPack(t, o, body)); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
	for say, bend := range map[string]func(o *order){
		"unknown kind": func(o *order) { o.Kind = "run" },
		"client 10":    func(o *order) { o.Client = 10 },
		"survey":       func(o *order) { o.Survey = "a\nb" },
		"identity":     func(o *order) { o.Round++ },
		"no identity":  func(o *order) { o.Accepted = "../../etc" },
		"checksum":     func(o *order) { o.Object = "../x"; o.ID = o.identity() },
	} {
		bad := o
		bend(&bad)
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
	}
	old := bytes.Clone(whole)
	old[3]++
	if err := read(old); err == nil || !strings.Contains(err.Error(), "same release") {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"shared/ctx": true, "extra/scaffold/dc/a_b-c.d": true, "": false, "/x": false,
		"x/": false, "a//b": false,
		"../x": false, "a/../b": false, "a..b": false, "a\\b": false, "a\x00": false, strings.Repeat("a", 201): false} {
		if err := checkNames(tensor.Map{name: nil}); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	many := tensor.Map{}
	for i := range maxTensors + 1 {
		many[fmt.Sprint(i)] = nil
	}
	if checkNames(many) == nil {
		t.Error("any number of tensors is taken")
	}
	if got := plain("a\x1b[31m\nb" + strings.Repeat("é", 400)); strings.ContainsAny(got, "\x1b\n") ||
		len(got) > maxError+3 {
		t.Errorf("%q", got)
	}
	for _, run := range []string{"", "a.b", "a b", "A", ">", strings.Repeat("a", 33)} {
		if CheckName(run) == nil {
			t.Errorf("run %q is taken", run)
		}
	}
}

// Whatever bytes come, what is taken is sound and costs no more than it weighs.
func FuzzMessage(f *testing.F) {
	o, body := anOrder(f)
	r, _ := aReply(f)
	f.Add(mustPack(f, o, body[:200]))
	f.Add(mustPack(f, r, nil))
	small, err := wire.Encode(tensor.Map{"extra/n": tensor.OfInts([]int64{1, 2}, 2), "shared/a": tensor.Scalar(3)})
	if err != nil {
		f.Fatal(err)
	}
	r.of(small)
	o.of(small)
	o.ID = o.identity()
	f.Add(mustPack(f, r, small))
	f.Add(mustPack(f, o, small))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = signed(replyMessage, b)
		var h reply
		if rest, err := reads(b, &h); err == nil && h.check() == nil {
			if m, err := h.tensors(rest); err == nil {
				if m.Bytes() > 8*len(b) {
					t.Fatalf("%d bytes became %d", len(b), m.Bytes())
				}
				if back, err := (message.Reply{}).With(m); err == nil {
					(message.Instruction{Kind: message.Compute}).Check(back, false)
					(message.Instruction{Kind: message.Train, Shared: tensor.Map{"a": tensor.Scalar(1)}}).Check(back,
						false)
				}
			}
		}
		b = signed(orderMessage, b)
		var g order
		if rest, err := reads(b, &g); err == nil && g.check() == nil {
			if m, err := g.tensors(rest); err == nil {
				(message.Instruction{Clients: []int{0}}).With(m)
			}
		}
	})
}
