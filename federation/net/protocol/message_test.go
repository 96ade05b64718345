package protocol_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/protocol"
	"promptfed/runtime/tensor"
)

// prompts returns tensors of the size of papers: 16 tokens of width 512.
func prompts() tensor.Map { return tensor.Map{"shared/ctx": tensor.New(16, 512)} }

// encode returns encoded tensors and their description with them.
func encode(t testing.TB, m tensor.Map) *protocol.Content {
	t.Helper()
	body, err := message.EncodeTensors(m)
	if err != nil {
		t.Fatal(err)
	}
	out := protocol.ContentOf(body)
	out.Body = body
	return out
}

func instruction(t testing.TB, m tensor.Map) *protocol.Instruction {
	t.Helper()
	o := protocol.InstructionFor(protocol.NewID(), message.Instruction{Kind: message.Train, Round: 49}, 9, 10,
		encode(t, m))
	o.Attempt, o.Accepted, o.Safe = protocol.NewID(), protocol.NewID(), protocol.NewID()
	return o
}

func reply(t testing.TB, m tensor.Map) *protocol.Reply {
	t.Helper()
	return &protocol.Reply{Id: protocol.NewID(), Attempt: protocol.NewID(), Examples: 1600, Loss: 1.2345678901234567,
		Steps: 50, Content: encode(t, m)}
}

func marshal(t testing.TB, m protobuf.Message) []byte {
	t.Helper()
	b, err := protobuf.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Messages are at most 3 % larger than their tensors.
func TestOverhead(t *testing.T) {
	for what, m := range map[string]protobuf.Message{
		"instruction": &protocol.ServerMessage{Kind: &protocol.ServerMessage_Instruction{
			Instruction: instruction(t, prompts())}},
		"reply": &protocol.ClientMessage{Kind: &protocol.ClientMessage_Reply{Reply: reply(t, prompts())}},
	} {
		n, tensors := len(marshal(t, m)), prompts().Bytes()
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
	var back protocol.Instruction
	if err := protobuf.Unmarshal(marshal(t, o), &back); err != nil || !protobuf.Equal(&back, o) ||
		protocol.CheckInstruction(&back) != nil || !back.Content.Inline() {
		t.Fatal(err, &back)
	}
	if m, err := back.Content.Tensors(back.Content.Body); err != nil || m["shared/ctx"].Len() != 16*512 {
		t.Fatal(err)
	}
	want := message.Instruction{Kind: message.Test, Round: 3, Set: "a", Statistic: "b", Steps: 4, Confusion: true}
	got := protocol.InstructionFor("run", want, 2, 5, protocol.ContentOf(nil)).Message()
	if want.Clients, want.Total = []int{2}, 5; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	r := reply(t, prompts())
	var also protocol.Reply
	if err := protobuf.Unmarshal(marshal(t, r), &also); err != nil || protocol.CheckReply(&also) != nil {
		t.Fatal(err)
	}
	if a, err := also.Message(7); err != nil || a.Client != 7 || a.Upload.Client != 7 || a.Upload.N != 1600 ||
		a.Stats.Loss != 1.2345678901234567 || a.Stats.Steps != 50 {
		t.Errorf("%+v, %v", a, err)
	}
}

// The longest statistics of a test, in both evaluations, fit into a reply.
func TestStatisticsFit(t *testing.T) {
	of := metrics.Compute(metrics.Examples{Scores: tensor.New(1, 2), Labels: []int64{0}}, true)
	for _, v := range of {
		for i := range v {
			v[i] = -math.MaxFloat64
		}
	}
	r := reply(t, nil)
	var err error
	r.Scores, err = json.Marshal(message.Scores{Examples: math.MaxInt, Global: of, Personal: of})
	if err != nil {
		t.Fatal(err)
	}
	back, err := r.Message(0)
	if err := protocol.CheckReply(r); err != nil {
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
	for name, change := range map[string]func(o *protocol.Instruction){
		"run":       func(o *protocol.Instruction) { o.Run = protocol.NewID() },
		"kind":      func(o *protocol.Instruction) { o.Kind = string(message.Compute) },
		"round":     func(o *protocol.Instruction) { o.Round++ },
		"statistic": func(o *protocol.Instruction) { o.Statistic = "x" },
		"set":       func(o *protocol.Instruction) { o.Set = "x" },
		"steps":     func(o *protocol.Instruction) { o.Steps++ },
		"confusion": func(o *protocol.Instruction) { o.Confusion = true },
		"client":    func(o *protocol.Instruction) { o.Client-- },
		"total":     func(o *protocol.Instruction) { o.Total++ },
		"size":      func(o *protocol.Instruction) { o.Content.Size++ },
		"checksum":  func(o *protocol.Instruction) { o.Content.Sum = protocol.Checksum(nil) },
	} {
		bad := protobuf.CloneOf(o)
		change(bad)
		if err := protocol.CheckInstruction(bad); err == nil || !strings.Contains(err.Error(), "identity") {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := protobuf.CloneOf(o)
	other.Attempt, other.Seq, other.Accepted, other.Safe = protocol.NewID(), 7, "", ""
	if err := protocol.CheckInstruction(other); err != nil {
		t.Error(err)
	}
	body := slices.Clone(o.Content.Body)
	body[len(body)-1] ^= 1
	for _, b := range [][]byte{body, body[:10], nil, append(bytes.Clone(o.Content.Body), 0)} {
		if _, err := o.Content.Tensors(b); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Error(err)
		}
	}
}

// Instructions and replies that nobody sends are refused with the reason.
func TestChecks(t *testing.T) {
	for say, change := range map[string]func(o *protocol.Instruction){
		"unknown kind":              func(o *protocol.Instruction) { o.Kind = "run" },
		"client 10":                 func(o *protocol.Instruction) { o.Client = 10 },
		"client -1":                 func(o *protocol.Instruction) { o.Client = -1 },
		"round 0":                   func(o *protocol.Instruction) { o.Round = -1 },
		"round 9223372036854775807": func(o *protocol.Instruction) { o.Round = math.MaxInt64 - 1 },
		"of 1048577":                func(o *protocol.Instruction) { o.Total = certs.MaxClients + 1 },
		"steps -1":                  func(o *protocol.Instruction) { o.Steps = -1 },
		"statistic":                 func(o *protocol.Instruction) { o.Statistic = "a\nb" },
		"evaluation set":            func(o *protocol.Instruction) { o.Set = strings.Repeat("a", 101) },
		"not an identity":           func(o *protocol.Instruction) { o.Accepted = "../../etc" },
		"is not an identity":        func(o *protocol.Instruction) { o.Safe = "x" },
		"\"x\" or":                  func(o *protocol.Instruction) { o.Run = "x" },
		"or \"x\"":                  func(o *protocol.Instruction) { o.Attempt = "x" },
		"checksum \"../x\"":         func(o *protocol.Instruction) { o.Content.Sum = "../x" },
		"invalid: 0 bytes":          func(o *protocol.Instruction) { o.Content = nil },
		"1099511627777 bytes":       func(o *protocol.Instruction) { o.Content.Size = 1<<40 + 1 },
	} {
		o := instruction(t, nil)
		change(o)
		o.Id = protocol.IdentityOf(o)
		if err := protocol.CheckInstruction(o); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
	}
	for say, change := range map[string]func(r *protocol.Reply){
		"\"x\" or":              func(r *protocol.Reply) { r.Id = "x" },
		"or \"x\"":              func(r *protocol.Reply) { r.Attempt = "x" },
		"-1 examples":           func(r *protocol.Reply) { r.Examples = -1 },
		"9007199254740993 exam": func(r *protocol.Reply) { r.Examples = protocol.MaxExamples + 1 },
		"-1 steps":              func(r *protocol.Reply) { r.Steps = -1 },
		"bytes of statistics":   func(r *protocol.Reply) { r.Scores = make([]byte, protocol.MaxScores+1) },
		"invalid: 0 bytes":      func(r *protocol.Reply) { r.Content = nil },
	} {
		r := reply(t, nil)
		change(r)
		if err := protocol.CheckReply(r); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
	}
	if protocol.CheckReply(nil) == nil {
		t.Error("no reply counts as a reply")
	}
	// Numbers at both ends of what is allowed are taken.
	for i, change := range []func(o *protocol.Instruction, r *protocol.Reply){
		func(o *protocol.Instruction, r *protocol.Reply) {
			o.Round, o.Client, o.Total, o.Steps, o.Content.Size = 0, 0, 1, 0, 0
			r.Examples, r.Steps = 0, 0
		},
		func(o *protocol.Instruction, r *protocol.Reply) {
			o.Round, o.Client, o.Total, o.Steps = 1<<30, certs.MaxClients-1, certs.MaxClients, 1<<30
			r.Examples, r.Steps, r.Scores = protocol.MaxExamples, 1<<30, make([]byte, protocol.MaxScores)
			o.Content.Size = 1 << 40
		},
	} {
		o, r := instruction(t, nil), reply(t, nil)
		change(o, r)
		o.Id = protocol.IdentityOf(o)
		if a, b := protocol.CheckInstruction(o), protocol.CheckReply(r); a != nil || b != nil {
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
			_, err = protocol.ContentOf(body).Tensors(body)
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
	if got := protocol.Printable("a\x1b[31m\nb" + strings.Repeat("é", 400)); strings.ContainsAny(got, "\x1b\n") ||
		len(got) > protocol.MaxText+3 {
		t.Errorf("%q", got)
	}
	for text, want := range map[string]string{"é\x00b": "é b", strings.Repeat("a", 500): strings.Repeat("a", 500),
		strings.Repeat("a", 501):       strings.Repeat("a", 500) + "...",
		strings.Repeat("a", 499) + "é": strings.Repeat("a", 499) + "..."} {
		if got := protocol.Printable(text); got != want {
			t.Errorf("%.10q is printed as %q", text, got)
		}
	}
}

// A message of any bytes is valid or refused, and its tensors are not larger than the message.
func FuzzMessage(f *testing.F) {
	small := tensor.Map{"extra/n": tensor.OfInts([]int64{1, 2}, 2), "shared/a": tensor.Scalar(3)}
	for _, m := range []tensor.Map{small, nil} {
		f.Add(marshal(f, reply(f, m)))
		f.Add(marshal(f, instruction(f, m)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r protocol.Reply
		if protobuf.Unmarshal(b, &r) == nil {
			if c := r.Content; c != nil { // the right description, without which no change would get further
				c.Size, c.Sum = uint64(len(c.Body)), protocol.Checksum(c.Body)
			}
			if protocol.CheckReply(&r) == nil {
				r.Message(0)
				if m, err := r.Content.Tensors(r.Content.Body); err == nil {
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
		var o protocol.Instruction
		if protobuf.Unmarshal(b, &o) != nil {
			return
		}
		if c := o.Content; c != nil {
			c.Size, c.Sum = uint64(len(c.Body)), protocol.Checksum(c.Body)
		}
		o.Id = protocol.IdentityOf(&o)
		if protocol.CheckInstruction(&o) == nil {
			if m, err := o.Content.Tensors(o.Content.Body); err == nil {
				o.Message().WithTensors(m)
			}
		}
	})
}
