package server

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// maxWeight returns weights that were derived by hand: 20 times the lower median of all claims, and with three or more
// clients twice the sum of the others. It refuses a claim of more than 1,000 medians.
func TestMaxWeight(t *testing.T) {
	for _, c := range []struct {
		claims  []int
		claimed int
		want    int // 0 for a refusal
	}{
		{nil, 7, 7},
		{[]int{7}, 7, 140},
		{[]int{10, 1000}, 1000, 200},       // two claims do not show who lies
		{[]int{1, math.MaxInt32}, 1, 20},   // likewise
		{[]int{10, 10, 9000}, 9000, 40},    // twice the sum of the others, 20
		{[]int{10, 10, 9000}, 10, 200},     // 20 medians, though twice the others would be 18020
		{[]int{10, 10, 10001}, 10001, 0},   // 1,000 medians are 10000
		{[]int{10, 10, 10000}, 10000, 40},  // exactly 1,000 medians
		{[]int{5, 5, 5, 8, 300}, 300, 46},  // twice the sum of the others, 23
		{[]int{3, 4, 50, 60}, 60, 80},      // the lower of the two in the middle
		{[]int{1, 1, 1 << 53}, 1 << 53, 0}, // no overflow
		{[]int{1 << 53, 1 << 53, 1 << 53}, 1 << 53, 1 << 55},
	} {
		got, err := maxWeight(c.claims, c.claimed)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%d of %v: %d, %v; not %d", c.claimed, c.claims, got, err, c.want)
		}
	}
}

// round applies the limits to a round of uploads, which change one of 10,001 parameters, all 0, by moves.
func round(t *testing.T, h *Server, number int, moves ...float32) (kept int, refused []message.Refusal, err error) {
	t.Helper()
	o := message.Instruction{Kind: message.Train, Round: number, Shared: tensor.Map{"ctx": tensor.New(1),
		"rest": tensor.New(10000)}}
	var replies []message.Reply
	for k, v := range moves {
		replies = append(replies, message.Reply{Client: k, Upload: method.Upload{Client: k,
			N:      h.members.roster().clients[k].Examples,
			Shared: tensor.Map{"ctx": tensor.Of([]float32{v}, 1), "rest": tensor.New(10000)}, Extra: tensor.Map{}}})
	}
	out, err := h.applyLimits(o, replies)
	report := h.Report()
	for _, cut := range report.Cut {
		if slices.ContainsFunc(report.Refused, func(r message.Refusal) bool { return r.Client == cut.Client }) {
			t.Errorf("round %d: an upload that is refused has its weight reduced: %+v", number, cut)
		}
	}
	return len(out), report.Refused, err
}

// newLimited returns a server of five clients, each with 10 examples.
func newLimited(t testing.TB, rate optim.Rate) *Server {
	t.Helper()
	m := enginetest.Build(t, "promptfl", nil, nil)
	h := newServer(Settings{ID: wire.NewID(), Method: m, Quorum: 0.8, Rate: rate, Clients: 5})
	for k := range 5 {
		h.change(k, func(m *member) { m.joined, m.Examples = true, 10 })
	}
	return h
}

// change changes what the server knows of a client.
func (h *Server) change(client int, change func(m *member)) {
	h.members.mu.Lock()
	defer h.members.mu.Unlock()
	m := &h.members.now.clients[client]
	c := *m.card
	m.card = &c
	change(m)
}

// One huge update among three is refused in the first round. Two updates do not show which one is usual. Then, and if
// two of three are huge, an update is refused if its norm exceeds 50 times that of the parameters, 10,001 zeros that
// count as ones. Three known rounds decide about one of two updates, also after the run was stopped and continued. The
// client of the huge updates also has too many examples.
func TestUsualMoves(t *testing.T) {
	h := newLimited(t, nil)
	h.change(0, func(m *member) { m.Examples = 1000 })
	if kept, refused, _ := round(t, h, 0, 1e5, 1, 2); kept != 2 || len(refused) != 1 || refused[0].Client != 0 ||
		!strings.Contains(refused[0].Reason, "at most 100 is accepted") { // 50 times the median of 1, 2 and 1e5
		t.Errorf("%d kept, refused %+v", kept, refused)
	}
	if kept, refused, _ := round(t, h, 1, 60, -2, 2); kept != 3 {
		t.Errorf("%d kept, refused %+v", kept, refused)
	}
	if kept, refused, _ := round(t, h, 2, 6e5, 1); kept != 1 || len(refused) != 1 || refused[0].Client != 0 ||
		!strings.Contains(refused[0].Reason, "at most 5000 is accepted, 50 times that of the parameters") {
		t.Errorf("%d of two kept, refused %+v", kept, refused)
	}
	if kept, refused, _ := round(t, newLimited(t, nil), 0, 6e5, 1, 6e5); kept != 1 || len(refused) != 2 {
		t.Errorf("%d of three kept, refused %+v", kept, refused)
	}
	b, err := h.Save()
	if err != nil || !json.Valid(b.Texts[layer]) {
		t.Fatal(err)
	}
	after := newLimited(t, nil)
	after.set.ID = h.set.ID
	goldentest.NoError(t, after.Load(b))
	for _, h := range []*Server{h, after} { // medians of the rounds were 1, 2 and 1
		if kept, refused, _ := round(t, h, 3, 51, 1); kept != 1 || len(refused) != 1 || refused[0].Client != 0 ||
			!strings.Contains(refused[0].Reason, "at most 50 is accepted") {
			t.Errorf("%d kept, refused %+v", kept, refused)
		}
	}
	if kept, _, _ := round(t, h, 4, 0, 0, 0, 0, 5); kept != 5 { // updates of norm 0 do not count for the usual norm
		t.Errorf("%d kept", kept)
	}
	h.set.Quorum, h.set.KeepQuorum = 1, true
	_, _, err = round(t, h, 5, 1e5, 1, 1)
	goldentest.WantErrorOf(t, "with a quorum of 1", err, "--quorum 1")
	for _, norm := range []float64{1e6, -1} { // another limit, which checkReply applies, and none
		h.set.MaxNorm = norm
		if kept, _, err := round(t, h, 6, 1e5, 1, 1); kept != 3 || err != nil {
			t.Errorf("--max-norm %g: %d kept, %v", norm, kept, err)
		}
	}
}

// Updates that grow with the learning rate after a warm-up are usual if the server knows the rate. So are updates that
// do not shrink with it.
func TestUsualMovesOfRate(t *testing.T) {
	rate := func(round int) float64 {
		if round < 3 {
			return 1e-5
		}
		return 1e-2
	}
	for want, rule := range map[int]optim.Rate{2: rate, 0: nil} {
		h := newLimited(t, rule)
		for r := range 3 {
			round(t, h, r, 1e-3, 1e-3)
		}
		if kept, refused, _ := round(t, h, 3, 1, 1.5); kept != want { // a thousand times as long
			t.Errorf("%d kept, not %d: %+v", kept, want, refused)
		}
	}
	h := newLimited(t, func(round int) float64 { return rate(5 - round) }) // it falls in round 3
	for r := range 4 {
		if kept, refused, _ := round(t, h, r, 1, 1.5); kept != 2 {
			t.Errorf("%d kept in round %d: %+v", kept, r, refused)
		}
	}
}

// Test results of more than a thousand times the usual number of examples are refused.
func TestRefuseTests(t *testing.T) {
	var replies []message.Reply
	for k, n := range []int{7, 0, 8, 7001, 7000} {
		replies = append(replies, message.Reply{Client: k, Scores: message.Scores{Examples: n}})
	}
	refused := map[int]error{}
	refuseTests(replies[:3], refused)
	if len(refused) > 0 {
		t.Errorf("two clients were tested: %v", refused)
	}
	replies[4].Scores.Examples = 8 // the lower median of 7, 8, 8, 7001 is 8
	refuseTests(replies, refused)
	if len(refused) != 0 {
		t.Errorf("%v", refused)
	}
	replies[3].Scores.Examples = 8001
	if refuseTests(replies, refused); len(refused) != 1 || refused[3] == nil {
		t.Errorf("%v", errors.Join(refused[0], refused[2], refused[3], refused[4]))
	}
}

// Counts of classes are reduced in proportion to the weight of the upload, 40 of 150 examples. Answers to statistics
// that count 150 examples are refused.
func TestCutCounts(t *testing.T) {
	m := enginetest.Build(t, "promptfl", []string{"fedproto", "ggtpc"}, nil)
	h := newServer(Settings{Method: m, Quorum: 0.8, Clients: 3})
	for i := range 3 {
		h.change(i, func(m *member) {
			m.joined, m.Examples = true, 10
			m.Participant.Task = method.ClientSpec{Client: i, Clients: 3, Classes: 2, Width: 4, Dim: 3}
		})
	}
	h.change(0, func(m *member) { m.Examples = 150 })
	counts := func() *tensor.Tensor { return tensor.Of([]float32{90, 60}, 2, 1) }
	replies := []message.Reply{{Upload: method.Upload{N: 150, Extra: tensor.Map{"proto/n": counts()}}}}
	out, err := h.applyLimits(message.Instruction{Kind: message.Train}, replies)
	if err != nil || out[0].Upload.N != 40 || out[0].Upload.Extra["proto/n"].Data[0] != 24 ||
		out[0].Upload.Extra["proto/n"].Data[1] != 16 {
		t.Errorf("%v: %+v", err, out)
	}
	replies = []message.Reply{{Upload: method.Upload{N: 150, Extra: tensor.Map{"n": counts()}}}}
	out, err = h.applyLimits(message.Instruction{Kind: message.Compute, Statistic: "ggtpc"}, replies)
	if r := h.Report().Refused; err != nil || len(out) != 0 || len(r) != 1 ||
		r[0].Reason != "it counts 150 examples; at most 40 are accepted (--max-examples)" {
		t.Errorf("%v: %+v, %+v", err, out, r)
	}
}
