package engine_test

import (
	"context"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/tensor"
)

// joiningClients are remote clients. Some join later: before a round, or in the middle of the previous one, after its
// training began.
type joiningClients struct {
	*remoteClients
	from   map[int]int // the round before which a client joins
	midway bool
	round  int                        // the current round
	got    map[int]map[int]tensor.Map // the broadcast in the instruction to train, by round and client
	there  map[int]bool               // clients that joined midway
	failed string                     // the error of a client
}

func late(e *spec.Experiment, from map[int]int, midway bool) *joiningClients {
	return &joiningClients{remoteClients: newRemoteClients(e), from: from, midway: midway, there: map[int]bool{},
		got: map[int]map[int]tensor.Map{}}
}

func (x *joiningClients) Participants() []message.Participant {
	out := x.remoteClients.Participants()
	for id, from := range x.from {
		if x.round < from && !x.there[id] {
			out[id] = message.Participant{}
		}
	}
	return out
}

func (x *joiningClients) Accept(round int, clients []int) error {
	x.round = round + 1
	return x.remoteClients.Accept(round, clients)
}

func (x *joiningClients) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	var out []message.Reply
	for _, id := range o.Clients {
		early := o.Round == x.from[id]-1 && x.midway && o.Kind == message.Train
		if o.Round < x.from[id] && !early {
			continue
		}
		x.there[id] = x.there[id] || early
		one := o
		one.Clients = []int{id}
		r, err := x.remoteClients.Run(ctx, one)
		if err != nil && early {
			x.failed = err.Error()
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r...)
		if o.Kind == message.Train {
			if x.got[o.Round] == nil {
				x.got[o.Round] = map[int]tensor.Map{}
			}
			x.got[o.Round][id] = x.last[id].Broadcast.Clone()
			for name, t := range x.last[id].PerClient[id] {
				x.got[o.Round][id][name] = t
			}
		}
	}
	return out, nil
}

// Clients that join later get the prototypes of their group, or none of any class if they are the first of the group;
// the other clients keep theirs. The toy's clients 1 and 3 have the second backbone, with features of dimension 7. The
// server also restarts once, after they joined and before the round is committed.
func TestFedProtoLatecomers(t *testing.T) {
	for name, from := range map[string]map[int]int{
		"the second of its backbone":    {3: 1},
		"the first of their backbone":   {1: 1, 3: 2},
		"of a backbone that is there":   {2: 1},
		"another backbone, then theirs": {1: 2, 3: 1},
	} {
		for _, midway := range []bool{false, true} {
			m := buildMethod(t, "coop", []string{"fedproto"}, map[string]any{"tokens": 2})
			e := withMethod(m)
			x := late(e, from, midway)
			x.stop = 1
			dir := t.TempDir()
			refused(t, server(e), engine.Settings{Dir: dir, Remote: x}, "goes down")
			mustRun(t, server(e), engine.Settings{Dir: dir, Remote: x, Resume: true})
			if x.failed != "" {
				t.Errorf("%s: %s", name, x.failed)
			}
			for id, c := range e.Clients {
				for round := max(1, from[id]); round < 3; round++ {
					sent, others := x.got[round][id], 0
					for other, o := range e.Clients {
						first := from[other]
						if midway && first > 0 {
							first--
						}
						if o.Backbone.Name() == c.Backbone.Name() && first < round {
							others++ // clients that trained before, maybe itself
						}
					}
					if got := sent["proto/mean"]; got == nil || got.Shape[1] != c.Backbone.Task().Dim ||
						(sent["proto/n"].MaxAbs() > 0) != (others > 0) {
						t.Errorf("%s: in round %d client %d gets %v of %v examples, %d of its backbone having "+
							"trained", name, round, id, got, sent["proto/n"], others)
					}
				}
			}
		}
	}
}

// The server requests statistics again when a client joins, so nobody trains uncalibrated: a client that joins in the
// middle of a round does not train in it.
func TestGGTPCLatecomers(t *testing.T) {
	for _, from := range []map[int]int{{3: 1}, {1: 1, 3: 2}, {2: 1}} {
		for _, midway := range []bool{false, true} {
			m := buildMethod(t, "promptfl", []string{"ggtpc"}, map[string]any{"tokens": 2, "min_count": 1,
				"prototypes": true})
			e := withMethod(m)
			x := late(e, from, midway)
			mustRun(t, server(e), engine.Settings{Remote: x})
			if midway != strings.Contains(x.failed, "joined after the statistics round") {
				t.Errorf("%v, midway %v: %q", from, midway, x.failed)
			}
			for id, first := range from {
				c := e.Clients[id]
				for round := range 3 {
					sent, there := x.got[round][id]
					if there != (round >= first) {
						t.Errorf("%v, midway %v: client %d trains in round %d", from, midway, id, round)
					}
					if round == first && (sent["axes"] == nil || sent["axes"].Shape[2] != c.Backbone.Task().Dim ||
						sent["sizes"].MaxAbs() == 0) {
						t.Errorf("%v: client %d joined and gets the axes %v", from, id, sent["axes"])
					}
				}
			}
		}
	}
}
