package protocol_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
	"promptfed/runtime/tensor"
)

// prompts are tensors of the size that papers have: 16 tokens of width 512.
func prompts() tensor.Map { return tensor.Map{"shared/ctx": tensor.New(16, 512)} }

func anOrder(t testing.TB) (protocol.Instruction, []byte) {
	t.Helper()
	body, err := message.EncodeTensors(prompts())
	if err != nil {
		t.Fatal(err)
	}
	o := protocol.Instruction{Run: subjects.NewID(), Try: subjects.NewID(), Kind: string(message.Train),
		Round: 49, Client: 9,
		Total: 10, Accepted: subjects.NewID(),
		Safe: subjects.NewID()}
	o.SetBody(body)
	o.ID = o.Identity()
	return o, body
}

func aReply(t testing.TB) (protocol.Reply, []byte) {
	t.Helper()
	o, body := anOrder(t)
	r := protocol.Reply{Run: o.Run, ID: o.ID, Try: o.Try, Client: 9, N: 1600, Loss: 1.2345678901234567, Steps: 50}
	r.SetBody(body)
	return r, body
}

// kindOf is what a header is one of.
func kindOf(header any) string {
	switch header.(type) {
	case protocol.Instruction, *protocol.Instruction:
		return protocol.InstructionMessage
	}
	return protocol.ReplyMessage
}

func mustPack(t testing.TB, header any, body []byte) []byte {
	t.Helper()
	return transporttest.Pack(t, kindOf(header), header, body)
}

// reads reads a message of the tests' key.
func reads(b []byte, header any) ([]byte, error) {
	return transporttest.Read(kindOf(header), b, header)
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
	var back protocol.Instruction
	got, err := reads(mustPack(t, o, body), &back)
	if err != nil || back != o || !bytes.Equal(got, body) || back.Check() != nil {
		t.Fatal(err, back)
	}
	if m, err := back.Tensors(got); err != nil || m["shared/ctx"].Len() != 16*512 {
		t.Fatal(err)
	}
}

// The longest statistics of a test, in both evaluations, fit into the header of a reply.
func TestStatisticsFit(t *testing.T) {
	of := metrics.Compute(metrics.Examples{Scores: tensor.New(1, 2), Labels: []int64{0}}, true)
	for _, v := range of {
		for i := range v {
			v[i] = -math.MaxFloat64
		}
	}
	r, _ := aReply(t)
	r.Scores = &message.Scores{Examples: math.MaxInt, Global: of, Personal: of}
	back := protocol.Reply{}
	if _, err := reads(mustPack(t, r, nil), &back); err != nil || len(back.Scores.Personal) < 2 {
		t.Errorf("%v: %v", err, back.Scores)
	}
}

// Whatever is changed in an order, it is not taken for one.
func TestDamagedOrders(t *testing.T) {
	o, body := anOrder(t)
	whole := mustPack(t, o, body)
	read := func(b []byte) error {
		var h protocol.Instruction
		rest, err := reads(b, &h)
		if err == nil {
			err = h.Check()
		}
		if err == nil {
			_, err = h.Tensors(rest)
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
	for say, bend := range map[string]func(o *protocol.Instruction){
		"unknown kind":    func(o *protocol.Instruction) { o.Kind = "run" },
		"client 10":       func(o *protocol.Instruction) { o.Client = 10 },
		"statistic":       func(o *protocol.Instruction) { o.Statistic = "a\nb" },
		"identity":        func(o *protocol.Instruction) { o.Round++ },
		"not an identity": func(o *protocol.Instruction) { o.Accepted = "../../etc" },
		"checksum":        func(o *protocol.Instruction) { o.Object = "../x"; o.ID = o.Identity() },
	} {
		bad := o
		bend(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), say) {
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
	read := func(names ...string) error {
		m := tensor.Map{}
		for _, name := range names {
			m[name] = tensor.Scalar(1)
		}
		body, err := message.EncodeTensors(m)
		if err == nil {
			var c protocol.Content
			c.SetBody(body)
			_, err = c.Tensors(body)
		}
		return err
	}
	for name, ok := range map[string]bool{"shared/ctx": true, "extra/scaffold/dc/a_b-c.d": true, "": false, "/x": false,
		"x/": false, "a//b": false,
		"../x": false, "a/../b": false, "a..b": false, "a\\b": false, "a\x00": false, strings.Repeat("a", 201): false} {
		if err := read(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	many := make([]string, 4097)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	if read(many...) == nil || read(many[1:]...) != nil {
		t.Error("any number of tensors is taken")
	}
	if got := protocol.Printable("a\x1b[31m\nb" + strings.Repeat("é", 400)); strings.ContainsAny(got, "\x1b\n") ||
		len(got) > protocol.MaxError+3 {
		t.Errorf("%q", got)
	}
	for _, run := range []string{"", "a.b", "a b", "A", ">", strings.Repeat("a", 33)} {
		if subjects.CheckName(run) == nil {
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
	small, err := message.EncodeTensors(tensor.Map{"extra/n": tensor.OfInts([]int64{1, 2}, 2),
		"shared/a": tensor.Scalar(3)})
	if err != nil {
		f.Fatal(err)
	}
	r.SetBody(small)
	o.SetBody(small)
	o.ID = o.Identity()
	f.Add(mustPack(f, r, small))
	f.Add(mustPack(f, o, small))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = transporttest.Signed(protocol.ReplyMessage, b)
		var h protocol.Reply
		if rest, err := reads(b, &h); err == nil && h.Check() == nil {
			if m, err := h.Tensors(rest); err == nil {
				if m.Bytes() > len(b) {
					t.Fatalf("%d bytes became %d", len(b), m.Bytes())
				}
				if back, err := (message.Instruction{}).WithReplyTensors(message.Reply{}, m); err == nil {
					(message.Instruction{Kind: message.Compute}).Check(back)
					(message.Instruction{Kind: message.Train, Shared: tensor.Map{"a": tensor.Scalar(1)}}).Check(back)
				}
			}
		}
		b = transporttest.Signed(protocol.InstructionMessage, b)
		var g protocol.Instruction
		if rest, err := reads(b, &g); err == nil && g.Check() == nil {
			if m, err := g.Tensors(rest); err == nil {
				(message.Instruction{Clients: []int{0}}).WithTensors(m)
			}
		}
	})
}
