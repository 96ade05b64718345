package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// prompts returns tensors of the size of papers: 16 tokens of width 512.
func prompts() tensor.Map { return tensor.Map{"shared/ctx": tensor.New(16, 512)} }

// encode returns encoded tensors and their description with them.
func encode(t testing.TB, m tensor.Map) *wire.Content {
	t.Helper()
	body := []byte(nettest.BytesOf(t, m))
	out := wire.ContentOf(body)
	out.Body = body
	return out
}

func instruction(t testing.TB, m tensor.Map) *wire.Instruction {
	t.Helper()
	o := wire.InstructionFor(wire.NewID(), message.Instruction{Kind: message.Train, Round: 49}, 9, 10, encode(t, m))
	o.Attempt, o.Accepted, o.Safe = wire.NewID(), wire.NewID(), wire.NewID()
	return o
}

func reply(t testing.TB, m tensor.Map) *wire.Reply {
	t.Helper()
	return &wire.Reply{Id: wire.NewID(), Attempt: wire.NewID(), Examples: 1600, Loss: 1.2345678901234567,
		Steps: 50, Content: encode(t, m)}
}

// The times are those of docs/distributed.md. Each of the four calls of a connection can fill its window.
func TestConnection(t *testing.T) {
	if wire.PingPause != 15*time.Second || wire.PingTime != 30*time.Second || wire.ConnectionWindow != 4*wire.Window {
		t.Error(wire.PingPause, wire.PingTime, wire.ConnectionWindow)
	}
}

// Messages are at most 3 % larger than their tensors.
func TestOverhead(t *testing.T) {
	for what, m := range map[string]protobuf.Message{
		"instruction": &wire.Part{Instruction: instruction(t, prompts())},
		"reply":       &wire.Part{Reply: reply(t, prompts())},
	} {
		n, tensors := len(nettest.Marshal(t, m)), prompts().Bytes()
		t.Logf("%s of 16 x 512: %d bytes, %.2f %% above the %d of its tensors", what, n,
			100*float64(n-tensors)/float64(tensors), tensors)
		if float64(n) > 1.03*float64(tensors) {
			t.Errorf("%s: %d bytes for tensors of %d", what, n, tensors)
		}
	}
}

// An instruction and a reply keep all fields over the wire, and the tensors are those of before.
func TestMessagesComeBack(t *testing.T) {
	o := instruction(t, prompts())
	var back wire.Instruction
	if err := protobuf.Unmarshal(nettest.Marshal(t, o), &back); err != nil || !protobuf.Equal(&back, o) ||
		wire.CheckInstruction(&back) != nil || !back.Content.Inline() {
		t.Fatal(err, &back)
	}
	if m, err := wire.Tensors(back.Content.Body); err != nil || m["shared/ctx"].Len() != 16*512 {
		t.Fatal(err)
	}
	want := message.Instruction{Kind: message.Test, Round: 3, Set: "a", Statistic: "b", Steps: 4, Confusion: true}
	got := wire.InstructionFor("run", want, 2, 5, wire.ContentOf(nil)).Message()
	if want.Clients, want.Total = []int{2}, 5; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	r := reply(t, prompts())
	var also wire.Reply
	if err := protobuf.Unmarshal(nettest.Marshal(t, r), &also); err != nil || wire.CheckReply(&also) != nil {
		t.Fatal(err)
	}
	if a, err := also.Message(7); err != nil || a.Client != 7 || a.Upload.Client != 7 || a.Upload.N != 1600 ||
		a.Stats.Loss != 1.2345678901234567 || a.Stats.Steps != 50 {
		t.Errorf("%+v, %v", a, err)
	}
}

// The longest statistics of a test, in both evaluations, fit into a reply.
func TestStatisticsFit(t *testing.T) {
	evaluation := metrics.Compute(metrics.Examples{Scores: tensor.New(1, 2), Labels: []int64{0}}, true)
	for _, v := range evaluation {
		for i := range v {
			v[i] = -math.MaxFloat64
		}
	}
	r := reply(t, nil)
	var err error
	r.Scores = goldentest.JSON(t, message.Scores{Examples: math.MaxInt, Global: evaluation, Personal: evaluation})
	back, err := r.Message(0)
	if err := wire.CheckReply(r); err != nil {
		t.Error(err)
	}
	if err != nil || len(back.Scores.Personal) < 2 || back.Scores.Examples != math.MaxInt {
		t.Errorf("%v: %v", err, back.Scores)
	}
	for _, bad := range []string{`{"x":1}`, `{} {}`, `[]`, `{`} {
		r.Scores = []byte(bad)
		if _, err := r.Message(0); err == nil {
			t.Errorf("%s counts as statistics", bad)
		}
	}
}

// The identity of an instruction covers all that determines the reply, and neither the attempt nor what the client may
// forget. Each change is found, as are damaged tensors.
func TestIdentities(t *testing.T) {
	o := instruction(t, prompts())
	for name, change := range map[string]func(o *wire.Instruction){
		"run":       func(o *wire.Instruction) { o.Run = wire.NewID() },
		"kind":      func(o *wire.Instruction) { o.Kind = string(message.Compute) },
		"round":     func(o *wire.Instruction) { o.Round++ },
		"statistic": func(o *wire.Instruction) { o.Statistic = "x" },
		"set":       func(o *wire.Instruction) { o.Set = "x" },
		"steps":     func(o *wire.Instruction) { o.Steps++ },
		"confusion": func(o *wire.Instruction) { o.Confusion = true },
		"client":    func(o *wire.Instruction) { o.Client-- },
		"total":     func(o *wire.Instruction) { o.Total++ },
		"size":      func(o *wire.Instruction) { o.Content.Size++ },
		"checksum":  func(o *wire.Instruction) { o.Content.Sum = wire.Checksum(nil) },
	} {
		bad := protobuf.CloneOf(o)
		change(bad)
		goldentest.WantErrorOf(t, name, wire.CheckInstruction(bad), "identity")
	}
	other := protobuf.CloneOf(o)
	other.Attempt, other.Seq, other.Accepted, other.Safe = wire.NewID(), 7, "", ""
	if err := wire.CheckInstruction(other); err != nil {
		t.Error(err)
	}
	body := slices.Clone(o.Content.Body)
	body[len(body)-1] ^= 1
	c := &wire.Content{Size: o.Content.Size, Sum: o.Content.Sum, Body: body}
	if err := c.CheckInline(); !errors.Is(err, wire.ErrDamaged) || o.Content.CheckInline() != nil {
		t.Error(err)
	}
}

// Tensors in parts are stored as far as they are those of the header, and nothing beyond: neither on a full disk, nor
// after an early end.
func TestParts(t *testing.T) {
	body := make([]byte, 3*wire.PartSize+1)
	for i := range body {
		body[i] = byte(i % 251)
	}
	var sent []*wire.Part
	err := wire.SendParts(context.Background(), body, func(p *wire.Part) error {
		sent = append(sent, p)
		return nil
	})
	if err != nil || len(sent) != 4 || len(sent[3].Data) != 1 {
		t.Fatal(len(sent), err)
	}
	lost := errors.New("the connection is lost")
	for name, x := range map[string]struct {
		parts []*wire.Part
		end   error
		want  error
	}{
		"whole":           {sent, io.EOF, nil},
		"an early end":    {sent[:3], io.EOF, io.ErrUnexpectedEOF},
		"lost":            {sent[:2], lost, lost},
		"another order":   {[]*wire.Part{sent[1], sent[0], sent[2], sent[3]}, io.EOF, wire.ErrDamaged},
		"empty parts":     {[]*wire.Part{sent[0], {}}, io.EOF, wire.ErrDamaged},
		"a header":        {[]*wire.Part{{Reply: &wire.Reply{}}}, io.EOF, wire.ErrDamaged},
		"a large part":    {[]*wire.Part{{Data: body[:wire.PartSize+1]}}, io.EOF, wire.ErrDamaged},
		"beyond the end":  {append(slices.Clone(sent[:3]), &wire.Part{Data: body[:2]}), io.EOF, wire.ErrDamaged},
		"other last byte": {append(slices.Clone(sent[:3]), &wire.Part{Data: body[1:2]}), io.EOF, wire.ErrDamaged},
	} {
		var b bytes.Buffer
		left := x.parts
		err := wire.ContentOf(body).ReceiveParts(&b, func() (*wire.Part, error) {
			if len(left) == 0 {
				return nil, x.end
			}
			defer func() { left = left[1:] }()
			return left[0], nil
		})
		if !errors.Is(err, x.want) || (err == nil) != (name == "whole") || b.Len() > len(body) {
			t.Errorf("%s: %v, %d bytes", name, err, b.Len())
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	err = wire.ContentOf(body).ReceiveParts(full, func() (*wire.Part, error) { return sent[0], nil })
	if err == nil || errors.Is(err, wire.ErrDamaged) { // the other side is not blamed
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(lost)
	if err := wire.SendParts(ctx, body, func(*wire.Part) error { return nil }); err != lost {
		t.Error(err)
	}
}

// Instructions and replies that nobody sends are refused with the reason.
func TestChecks(t *testing.T) {
	for say, change := range map[string]func(o *wire.Instruction){
		"unknown kind":              func(o *wire.Instruction) { o.Kind = "run" },
		"client 10":                 func(o *wire.Instruction) { o.Client = 10 },
		"client -1":                 func(o *wire.Instruction) { o.Client = -1 },
		"round 0":                   func(o *wire.Instruction) { o.Round = -1 },
		"round 9223372036854775807": func(o *wire.Instruction) { o.Round = math.MaxInt64 - 1 },
		"of 1048577":                func(o *wire.Instruction) { o.Total = certs.MaxClients + 1 },
		"steps -1":                  func(o *wire.Instruction) { o.Steps = -1 },
		"statistic":                 func(o *wire.Instruction) { o.Statistic = "a\nb" },
		"evaluation set":            func(o *wire.Instruction) { o.Set = strings.Repeat("a", 101) },
		"not an identity":           func(o *wire.Instruction) { o.Accepted = "../../etc" },
		"is not an identity":        func(o *wire.Instruction) { o.Safe = "x" },
		"\"x\" or":                  func(o *wire.Instruction) { o.Run = "x" },
		"or \"x\"":                  func(o *wire.Instruction) { o.Attempt = "x" },
		"checksum \"../x\"":         func(o *wire.Instruction) { o.Content.Sum = "../x" },
		"invalid: 0 bytes":          func(o *wire.Instruction) { o.Content = nil },
		"1099511627777 bytes":       func(o *wire.Instruction) { o.Content.Size = 1<<40 + 1 },
	} {
		o := instruction(t, nil)
		change(o)
		o.Id = wire.IdentityOf(o)
		goldentest.WantError(t, wire.CheckInstruction(o), say)
	}
	for say, change := range map[string]func(r *wire.Reply){
		"\"x\" or":              func(r *wire.Reply) { r.Id = "x" },
		"or \"x\"":              func(r *wire.Reply) { r.Attempt = "x" },
		"-1 examples":           func(r *wire.Reply) { r.Examples = -1 },
		"9007199254740993 exam": func(r *wire.Reply) { r.Examples = wire.MaxExamples + 1 },
		"-1 steps":              func(r *wire.Reply) { r.Steps = -1 },
		"bytes of statistics":   func(r *wire.Reply) { r.Scores = make([]byte, wire.MaxScores+1) },
		"bytes of loss terms":   func(r *wire.Reply) { r.Terms = make([]byte, wire.MaxTerms+1) },
		"invalid: 0 bytes":      func(r *wire.Reply) { r.Content = nil },
	} {
		r := reply(t, nil)
		change(r)
		goldentest.WantError(t, wire.CheckReply(r), say)
	}
	if wire.CheckReply(nil) == nil {
		t.Error("no reply counts as a reply")
	}
	// Numbers at both ends of what is allowed are taken.
	for i, change := range []func(o *wire.Instruction, r *wire.Reply){
		func(o *wire.Instruction, r *wire.Reply) {
			o.Round, o.Client, o.Total, o.Steps, o.Content.Size = 0, 0, 1, 0, 0
			r.Examples, r.Steps = 0, 0
		},
		func(o *wire.Instruction, r *wire.Reply) {
			o.Round, o.Client, o.Total, o.Steps = 1<<30, certs.MaxClients-1, certs.MaxClients, 1<<30
			r.Examples, r.Steps, r.Scores = wire.MaxExamples, 1<<30, make([]byte, wire.MaxScores)
			o.Content.Size, r.Terms = 1<<40, make([]byte, wire.MaxTerms)
		},
	} {
		o, r := instruction(t, nil), reply(t, nil)
		change(o, r)
		o.Id = wire.IdentityOf(o)
		if a, b := wire.CheckInstruction(o), wire.CheckReply(r); a != nil || b != nil {
			t.Errorf("end %d: %v, %v", i, a, b)
		}
	}
}

// Tensors have names without other meanings, and there are not too many. Texts of the other side are one printable
// line.
func TestNames(t *testing.T) {
	read := func(names ...string) error {
		m := tensor.Map{}
		for _, name := range names {
			m[name] = tensor.Scalar(1)
		}
		body, err := message.EncodeTensors(m)
		if err == nil {
			_, err = wire.Tensors(body)
		}
		return err
	}
	for name, ok := range map[string]bool{"shared/ctx": true, "extra/scaffold/dc/a_b-c.d": true, "": false, "/x": false,
		"x/": false, "a//b": false,
		"../x": false, "a/../b": false, "a..b": false, "a\\b": false, "a\x00": false, strings.Repeat("a", 201): false,
		strings.Repeat("a", 200): true} {
		if err := read(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	many := make([]string, 4097)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	if read(many...) == nil || read(many[1:]...) != nil {
		t.Error("there may be any number of tensors")
	}
	if got := wire.Printable("a\x1b[31m\nb" + strings.Repeat("é", 400)); strings.ContainsAny(got, "\x1b\n") ||
		len(got) > wire.MaxText+3 {
		t.Errorf("%q", got)
	}
	for text, want := range map[string]string{"é\x00b": "é b", strings.Repeat("a", 500): strings.Repeat("a", 500),
		strings.Repeat("a", 501):       strings.Repeat("a", 500) + "...",
		strings.Repeat("a", 499) + "é": strings.Repeat("a", 499) + "..."} {
		if got := wire.Printable(text); got != want {
			t.Errorf("%.10q is printed as %q", text, got)
		}
	}
}

// A message of any bytes is valid or refused, and its tensors are not larger than the message.
func FuzzMessage(f *testing.F) {
	small := tensor.Map{"extra/n": tensor.OfInts([]int64{1, 2}, 2), "shared/a": tensor.Scalar(3)}
	for _, m := range []tensor.Map{small, nil} {
		f.Add(nettest.Marshal(f, reply(f, m)))
		f.Add(nettest.Marshal(f, instruction(f, m)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r wire.Reply
		if protobuf.Unmarshal(b, &r) == nil {
			if c := r.Content; c != nil { // the right description, without which no change would get further
				c.Size, c.Sum = uint64(len(c.Body)), wire.Checksum(c.Body)
			}
			if wire.CheckReply(&r) == nil {
				r.Message(0)
				if m, err := wire.Tensors(r.Content.Body); err == nil {
					if m.Bytes() > len(b) {
						t.Fatalf("%d bytes became %d", len(b), m.Bytes())
					}
					if back, err := (message.Instruction{}).WithReplyTensors(message.Reply{}, m); err == nil {
						(message.Instruction{Kind: message.Compute}).Check(back)
						(message.Instruction{Kind: message.Train,
							Shared: tensor.Map{"a": tensor.Scalar(1)}}).Check(back)
					}
				}
			}
		}
		var o wire.Instruction
		if protobuf.Unmarshal(b, &o) != nil {
			return
		}
		if c := o.Content; c != nil {
			c.Size, c.Sum = uint64(len(c.Body)), wire.Checksum(c.Body)
		}
		o.Id = wire.IdentityOf(&o)
		if wire.CheckInstruction(&o) == nil {
			if m, err := wire.Tensors(o.Content.Body); err == nil {
				o.Message().WithTensors(m)
			}
		}
	})
}
