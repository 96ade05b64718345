package server

import (
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/net/wire"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// Under differential privacy no upload is judged by the uploads or examples of others: epsilon holds for a sum of
// clipped updates, in which each client changes only its own term. Without differential privacy the same uploads are
// refused and reduced (TestUsualMoves, TestCutCounts). The checkpoint holds no norm.
func TestUploadsAreNotComparedUnderDP(t *testing.T) {
	h := newLimited(t, nil)
	h.set.Privacy.Clients = true
	for k := range 5 {
		h.change(k, func(m *member) { m.Examples = 0 }) // the server does not know them
	}
	for number, moves := range [][]float32{{1e5, 1, 2}, {1, 1e5, 1}, {-2, 1, 3}, {51, 1}} {
		kept, refused, err := round(t, h, number, moves...)
		if err != nil || kept != len(moves) || len(refused) != 0 {
			t.Errorf("%v: %d kept, refused %+v, %v", moves, kept, refused, err)
		}
	}
	if b, err := h.Save(); err != nil || strings.Contains(string(b.Texts[layer]), "norm\":") || h.LongestMove() != 0 {
		t.Errorf("%s, %v", b.Texts, err)
	}
	before := newLimited(t, nil)
	before.set.ID = h.set.ID
	round(t, before, 0, 1, 2, 3)
	b, err := before.Save()
	if err != nil || !strings.Contains(string(b.Texts[layer]), "norm\":2") {
		t.Fatalf("%s, %v", b.Texts, err)
	}
	if err := h.Load(b); err != nil || len(h.norms) != 0 {
		t.Errorf("%v, %v", h.norms, err)
	}
}

// Under differential privacy, a refusal by a fixed bound does not show the number.
func TestRefusalsShowNoNumberUnderDP(t *testing.T) {
	o := message.Instruction{Kind: message.Train, Shared: tensor.Map{"ctx": tensor.New(1)}}
	r := message.Reply{Upload: method.Upload{N: 1, Shared: tensor.Map{"ctx": tensor.Of([]float32{4e6}, 1)},
		Extra: tensor.Map{}}}
	for _, most := range []float64{0, 5} {
		h := newLimited(t, nil)
		h.set.Privacy.Clients, h.set.MaxNorm = true, most
		err := h.checkReply(o, r)
		if err == nil || strings.Contains(err.Error(), "4e+06") || !strings.Contains(err.Error(), "not shown") {
			t.Errorf("--max-norm %v: %v", most, err)
		}
	}
	r.Upload.Shared["ctx"].Data[0] = 1e6 // the largest number, and the largest move that is accepted
	for _, most := range []float64{0, 1e6} {
		h := newLimited(t, nil)
		h.set.Privacy.Clients, h.set.MaxNorm = true, most
		if err := h.checkReply(o, r); err != nil {
			t.Errorf("--max-norm %v: %v", most, err)
		}
	}
}

// If the sample of clients is secret, the status does not depend on which clients have an instruction, answered it or
// were refused. If the size of the sample is secret too, it does not depend on their number.
func TestStatusHidesTheSample(t *testing.T) {
	shown := func(p Privacy, trains ...int) string {
		h := newLimited(t, nil)
		h.set.Privacy, h.set.ID = p, "run"
		c := newCollection(message.Instruction{Kind: message.Train, Round: 3, Clients: trains})
		for k := range 5 {
			h.change(k, func(m *member) {
				m.session, m.Examples = &session{instance: "i", ctx: t.Context(), calls: 1}, 0
			})
		}
		h.counts.change(func(n *counts) {
			for _, k := range trains {
				c.given[k], c.got[k] = "order", message.Reply{}
				h.mail.deliver(k, &pending{Instruction: &wire.Instruction{Kind: string(message.Train)}, collection: c})
				n.clients[k] = tally{1, 1, 9, 9, "reason", 0, 0, 0}
			}
			n.BytesUp += int64(9 * len(trains))
			n.Replies += int64(len(trains))
		})
		h.current.Store(c)
		return string(goldentest.JSON(t, h.Status()))
	}
	sample := Privacy{Clients: true, Sample: true}
	if a, b := shown(sample, 0, 2), shown(sample, 1, 4); a != b {
		t.Errorf("%s\n%s", a, b)
	}
	size := Privacy{Clients: true, Sample: true, Size: true}
	if a, b := shown(size, 0, 2, 3), shown(size, 1); a != b {
		t.Errorf("%s\n%s", a, b)
	}
	if a, b := shown(Privacy{}, 0, 2), shown(Privacy{}, 1, 4); a == b || !strings.Contains(a, "asked") {
		t.Errorf("without privacy: %s", a)
	}
}

// If secure aggregation or differential privacy hides the clients' numbers of examples, the server's folder does not
// hold them, whatever a client's request says.
func TestMembersHoldNoExamples(t *testing.T) {
	for name, hide := range map[string]func(*Settings){"secure aggregation": func(s *Settings) { s.Masked = true },
		"dp": func(s *Settings) { s.Privacy.Clients = true }, "neither": func(*Settings) {}} {
		set := newLimited(t, nil).set
		hide(&set)
		h := newElectionOf(t, set)
		request := wire.JoinRequest{Examples: 4711}
		request.RunSpec.Classes = []string{"a", "b"}
		request.Participant.Task = method.ClientSpec{Backbone: "b", Width: 4, Dim: 3}
		h.set.RunSpec = request.RunSpec
		if _, err := h.enters(2, request); err != nil {
			t.Fatal(err)
		}
		kept := strings.Contains(file(t, h.path("client-2")), "4711")
		if kept != (name == "neither") || (h.Status().Clients[2].Examples != 0) != kept {
			t.Errorf("%s: the file of a client that joins holds the number: %v", name, kept)
		}
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	return string(filetest.Read(t, path))
}
