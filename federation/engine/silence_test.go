package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
)

// silentClients are clients of which some do not answer from a round on, and no round waits for them.
type silentClients struct {
	*rejectionRecorder
	silent []int
	asked  [][]int // in training
}

func (x *silentClients) Participants() []message.Participant {
	all := x.rejectionRecorder.Participants()
	for _, k := range x.silent {
		all[k].Silent = true
	}
	return all
}

func (x *silentClients) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if o.Kind == message.Train {
		x.asked = append(x.asked, o.Clients)
	}
	o.Clients = slices.DeleteFunc(slices.Clone(o.Clients), func(k int) bool { return slices.Contains(x.silent, k) })
	if len(o.Clients) == 0 {
		return nil, nil
	}
	return x.rejectionRecorder.Run(ctx, o)
}

// Without differential privacy, a draw whose clients are all silent is drawn again: it gets others in addition, and the
// silent ones may still answer. If nobody else is there, the round has no upload.
func TestSilentDrawIsDrawnAgain(t *testing.T) {
	e := toy(t)
	e.Plan.Participation, e.Plan.Rounds = 1/float64(len(e.Clients)), 6
	run := func(silent ...int) (*silentClients, []record.Record) {
		x := &silentClients{rejectionRecorder: &rejectionRecorder{remoteClients: newRemoteClients(e)}, silent: silent}
		return x, mustRun(t, server(e), engine.Settings{Remote: x}).Records
	}
	x, records := run(0)
	if len(x.asked) == len(records) {
		t.Fatal("client 0 is never drawn")
	}
	for _, r := range records {
		if len(r.Clients) != 1 || r.Clients[0] == 0 {
			t.Errorf("round %d has %v", r.Round+1, r.Clients)
		}
	}
	for i, drawn := range x.asked {
		if slices.Equal(drawn, []int{0}) && (len(x.asked[i+1]) != 2 || x.asked[i+1][0] != 0) {
			t.Errorf("after %v it asks %v", drawn, x.asked[i+1])
		}
	}
	all := make([]int, len(e.Clients))
	for k := range all {
		all[k] = k
	}
	if x, records = run(all...); len(x.asked) != len(records) || len(records[0].Clients) > 0 {
		t.Errorf("%v, %+v", x.asked, records[0])
	}
}

// Under differential privacy an unanswered draw is a round of noise alone, and is charged as any other.
func TestSilentDrawUnderDP(t *testing.T) {
	e, _ := withClientNoise(t)
	e.Method = buildMethod(t, "promptfl", []string{"dp"}, map[string]any{"tokens": 2, "noise": 1.0, "delta": 1e-3})
	run := func(silent ...int) *engine.Result {
		x := &silentClients{rejectionRecorder: &rejectionRecorder{remoteClients: newRemoteClients(e)}, silent: silent}
		key, err := noise.Open(filepath.Join(t.TempDir(), "key"), "run", false)
		goldentest.NoError(t, err)
		return mustRun(t, server(e), engine.Settings{Remote: x, ServerNoise: key})
	}
	answered, alone := run(), run(0, 1, 2, 3)
	for i, r := range alone.Records {
		if len(r.Clients) > 0 || r.Notes["epsilon"] != answered.Records[i].Notes["epsilon"] || r.Notes["epsilon"] == 0 {
			t.Errorf("round %d has %v and costs %v, with answers %v", i+1, r.Clients, r.Notes,
				answered.Records[i].Notes)
		}
	}
	if alone.Prompts["shared/ctx"].Norm() == 0 {
		t.Error("there is no noise")
	}
}

// If clients add the noise and too few upload, the round is skipped, and no client is blamed.
func TestTooFewForClientNoise(t *testing.T) {
	e, _ := withClientNoise(t)
	x := &silentClients{rejectionRecorder: &rejectionRecorder{remoteClients: newRemoteClients(e)},
		silent: []int{0, 1, 2}}
	r := mustRun(t, server(e), engine.Settings{Remote: x})
	for _, rec := range r.Records {
		if text := strings.Join(rec.Warnings, ""); !strings.Contains(text, "is skipped: dp: 1 clients uploaded") {
			t.Errorf("round %d: %v, %s", rec.Round+1, rec.Clients, text)
		}
	}
	if len(x.rejected) > 0 {
		t.Errorf("clients %v are blamed", x.rejected)
	}
}

// fails is a method that fails over uploads and clients of a kind.
type fails struct {
	method.Method
	what string
}

func (m fails) Start(g *method.Global) error {
	if m.what == "start" && g.Task.Client == 0 {
		return errors.New("no backbone of client 0")
	}
	return m.Method.Start(g)
}

func (m fails) Join(g *method.Global, clients []int) error {
	if m.what == "join" && g.HasJoined(2) {
		return errors.New("no domain of client 2")
	}
	return m.Method.Join(g, clients)
}

func (m fails) Merge(g *method.Global, ups []method.Upload) error {
	clients := 0
	for _, u := range ups {
		clients |= 1 << u.Client
	}
	if m.what == "pair" && clients&0b101 == 0b101 {
		return errors.New("clients 0 and 2 do not fit")
	}
	if m.what == "first" && clients&1 == 1 && clients != 1 {
		return errors.New("client 0 fits to nobody")
	}
	if m.what == "join" && g.HasJoined(2) {
		return errors.New("client 2 is known, though Join failed over it")
	}
	if m.what == "few" && len(ups) < 4 {
		return method.TooFewError("4 are needed")
	}
	if err := m.Method.Merge(g, ups); err != nil {
		return err
	}
	if m.what == "few" {
		return errors.New("one of 4 clients does not fit")
	}
	if m.what == "infinite" && clients&0b100 != 0 {
		for _, t := range g.Shared {
			t.Data[0] = float32(math.Inf(1))
		}
	}
	return nil
}

// laterClients are clients of which the last two join after the first round.
type laterClients struct {
	*rejectionRecorder
	rounds int
}

func (x *laterClients) Participants() []message.Participant {
	all := x.rejectionRecorder.Participants()
	for k := range all {
		all[k].Joined = k == 0 || x.rounds > 0
	}
	return all
}

func (x *laterClients) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if x.rounds == 0 {
		o.Clients = []int{0}
	}
	return x.rejectionRecorder.Run(ctx, o)
}

func (x *laterClients) Accept(round int, clients []int) error {
	x.rounds++
	return x.rejectionRecorder.Accept(round, clients)
}

// A method that fails over what a client says fails over this client alone, whatever it is doing: it starts, lets
// clients join, or merges uploads that fail only together or are not finite. Clients 0 and 2 have the same sizes. Where
// fewer uploads than all are too few to tell, nobody is blamed and nothing counts.
func TestErrorsBelongToTheirClient(t *testing.T) {
	for what, blamed := range map[string][]int{"start": {0, 2}, "join": {2}, "pair": {2}, "first": {0},
		"infinite": {2}, "few": nil} {
		t.Run(what, func(t *testing.T) {
			e := toy(t)
			e.Method, e.Plan.Rounds = fails{e.Method, what}, 3
			recorder := &rejectionRecorder{remoteClients: newRemoteClients(e)}
			set := engine.Settings{Remote: recorder}
			if what == "join" {
				set.Remote = &laterClients{rejectionRecorder: recorder}
			}
			r := mustRun(t, server(e), set)
			got := slices.Compact(slices.Sorted(slices.Values(recorder.rejected)))
			if len(r.Records) != 3 || !slices.Equal(got, blamed) {
				t.Errorf("%d rounds, clients %v are blamed", len(r.Records), got)
			}
			for _, rec := range r.Records {
				merges, none := what != "start" && what != "join", what == "few" && len(rec.Clients) > 0
				if none || merges && what != "few" && slices.Contains(rec.Clients, blamed[0]) {
					t.Error(fmt.Sprint("round ", rec.Round+1, " has ", rec.Clients))
				}
			}
		})
	}
}

// failsTimes is a method that fails over all uploads in its first calls.
type failsTimes struct {
	method.Method
	left *int
}

func (m failsTimes) Merge(g *method.Global, ups []method.Upload) error {
	if *m.left > 0 {
		return errors.New("these uploads are wrong")
	}
	return m.Method.Merge(g, ups)
}

// A round over whose uploads, one by one, the method fails changes nothing. Three of them in a row end the run.
func TestMethodFailsOverAllUploads(t *testing.T) {
	for bad, ends := range map[int]bool{2: false, 3: true} {
		e, left := toy(t), bad
		e.Method, e.Plan.Rounds = failsTimes{e.Method, &left}, 4
		recorder := &rejectionRecorder{remoteClients: newRemoteClients(e)}
		later := func(record.Record) { left-- }
		r, err := engine.Run(t.Context(), server(e), engine.Settings{Remote: recorder, OnRound: later})
		if (err != nil) != ends || ends && !strings.Contains(err.Error(), "round 3, merge: these uploads are wrong") {
			t.Fatalf("%d rounds: %v", bad, err)
		}
		if n := len(recorder.rejected); n != bad*len(e.Clients) {
			t.Errorf("%d rounds: %d uploads are refused", bad, n)
		}
		if ends {
			continue
		}
		for _, rec := range r.Records {
			if (len(rec.Clients) == 0) != (rec.Round < bad) {
				t.Errorf("%d rounds: round %d counts %v", bad, rec.Round+1, rec.Clients)
			}
		}
	}
}

// oddSizes are clients of which the first claim a size that no other has.
type oddSizes struct {
	*rejectionRecorder
	odd int
}

func (x oddSizes) Participants() []message.Participant {
	all := x.rejectionRecorder.Participants()
	for k := range x.odd {
		all[k].Task.VisionUnits = 12345
	}
	return all
}

// startsWith records the task that a method starts with. It has no class scores of the odd size.
type startsWith struct {
	method.Method
	task *method.ClientSpec
}

func (m startsWith) Logits(s *method.Scope) graph.Node {
	if s.Task().VisionUnits == 12345 {
		return s.Graph().Fail("no scores")
	}
	return m.Method.Logits(s)
}

func (m startsWith) Start(g *method.Global) error {
	*m.task = g.Task
	return m.Method.Start(g)
}

// otherBackbones are clients with a backbone for each, of which the first claims a size that no other has.
type otherBackbones struct{ *rejectionRecorder }

func (x otherBackbones) Participants() []message.Participant {
	all := x.rejectionRecorder.Participants()
	for k := range all {
		all[k].Task.Backbone = fmt.Sprint("backbone ", k)
	}
	all[0].Task.VisionUnits = 6789
	return all
}

// A method starts with the sizes that most clients have, not with those of the first, but never with sizes that give no
// class scores.
func TestStartsWithMostClients(t *testing.T) {
	for _, odd := range []int{1, 3} {
		e := toy(t)
		var task method.ClientSpec
		e.Method = startsWith{e.Method, &task}
		x := &rejectionRecorder{remoteClients: newRemoteClients(e)}
		mustRun(t, server(e), engine.Settings{Remote: oddSizes{x, odd}})
		if task.Client != odd || task.Width == 0 || task.VisionUnits == 12345 {
			t.Errorf("%d clients are odd: %+v", odd, task)
		}
		if mustRun(t, server(e), engine.Settings{Remote: otherBackbones{x}}); task.Client == 0 {
			t.Errorf("the first of different clients decides: %+v", task)
		}
	}
}
