package engine_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// remoteClients runs the clients of an experiment as a remote cohort: messages pass through their encoded form, and a
// client's memory counts from Accept on.
type remoteClients struct {
	of       *spec.Experiment
	worker   *client.Worker
	accepted map[int]int // rounds, by client
	states   map[int]map[int]message.ClientState
	last     map[int]message.Instruction
	stop     int // before the training of this round, once
}

func newRemoteClients(e *spec.Experiment) *remoteClients {
	return &remoteClients{of: e, worker: client.NewWorker(e, client.Settings{}), accepted: map[int]int{},
		states: map[int]map[int]message.ClientState{},
		last:   map[int]message.Instruction{}, stop: -1}
}

func (x *remoteClients) Participants() []message.Participant {
	return convert.Slice(x.of.Clients, func(c *spec.Client) message.Participant {
		return message.Participant{Joined: true, Task: x.of.Task(c), Domain: c.Domain}
	})
}

func (x *remoteClients) Save() (out message.Saved, err error) {
	err = out.Put("test", x.accepted, nil)
	return out, err
}
func (x *remoteClients) Load(from message.Saved) error {
	clear(x.accepted)
	_, err := from.Get("test", &x.accepted)
	return err
}
func (x *remoteClients) Traits() message.Traits          { return message.Traits{Claimed: true} }
func (x *remoteClients) Report() message.Report          { return message.Report{} }
func (x *remoteClients) Rejected(int, int, error)        {}
func (x *remoteClients) state(c int) message.ClientState { return x.states[c][x.accepted[c]] }

func (x *remoteClients) Accept(round int, clients []int) error {
	for _, c := range clients {
		x.accepted[c] = round + 1
	}
	return nil
}

func encoded(m tensor.Map) tensor.Map {
	b, err := message.EncodeTensors(m)
	if err == nil {
		m, err = message.DecodeTensors(b)
	}
	if err != nil {
		panic(err)
	}
	return m
}

func (x *remoteClients) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if o.Kind == message.Train && o.Round == x.stop {
		x.stop = -1
		return nil, errors.New("the server goes down")
	}
	var out []message.Reply
	for _, id := range slices.Backward(o.Clients) {
		one := o.ForClient(id)
		m := encoded(one.Tensors())
		one.Shared, one.Broadcast, one.PerClient = nil, nil, nil
		one, err := one.WithTensors(m)
		if err != nil {
			return nil, err
		}
		x.last[id] = one
		r, next, err := x.worker.Execute(ctx, x.of.Clients[id], one, x.state(id))
		if err != nil {
			return nil, err
		}
		if next != nil {
			if x.states[id] == nil {
				x.states[id] = map[int]message.ClientState{}
			}
			x.states[id][o.Round+1] = *next
		}
		if r, err = o.WithReplyTensors(r, encoded(r.Tensors())); err != nil {
			return nil, err
		}
		if err := o.Check(r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// server returns an experiment as a server of remote clients has it.
func server(e *spec.Experiment) *spec.Experiment {
	s := *e
	s.Clients = nil
	return &s
}

// Remote clients have the parameters of clients in this process, to the last bit, also if the server goes down before a
// round is committed and resumes. The server's file has the shared parameters, and each client's file its own.
func TestRemoteClients(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	mustRun(t, toy(t), engine.Settings{Dir: here})
	e := toy(t)
	x := newRemoteClients(e)
	x.stop = 1
	refused(t, server(e), engine.Settings{Dir: there, Remote: x}, "goes down")
	clear(x.accepted)
	mustRun(t, server(e), engine.Settings{Dir: there, Remote: x, Resume: true})

	want, meta, err := state.ReadPrompts(here, 0, 1, 2, 3)
	goldentest.NoError(t, err)
	got, gotMeta, err := state.ReadPrompts(there)
	goldentest.NoError(t, err)
	for key, m := range x.Participants() { // no participant but the server's own
		own := filepath.Join(t.TempDir(), record.PromptsFile)
		goldentest.NoError(t, state.WriteClientParams(e, own, e.Clients[key], x.last[key], x.state(key)))
		part, partMeta, err := safetensors.ReadFile(own)
		goldentest.NoError(t, err)
		for name := range part {
			if !strings.HasPrefix(name, "shared/") && !strings.HasPrefix(name, "client/"+string(rune('0'+key))) {
				t.Errorf("the file of client %d holds %s", key, name)
			}
		}
		maps.Copy(got, part)
		if !strings.Contains(partMeta[state.MetaBackbones], m.Task.Backbone) ||
			partMeta[state.MetaClasses] != meta[state.MetaClasses] {
			t.Errorf("client %d: metadata %v", key, partMeta)
		}
	}
	if gotMeta[state.MetaBackbones] != meta[state.MetaBackbones] {
		t.Errorf("backbones %s, in one process %s", gotMeta[state.MetaBackbones], meta[state.MetaBackbones])
	}
	a, err := message.EncodeTensors(want)
	goldentest.NoError(t, err)
	if b, err := message.EncodeTensors(got); err != nil || !bytes.Equal(a, b) {
		t.Errorf("%v: other bytes than in one process", err)
	}
	// A client that joins later is unknown before.
	none := newRemoteClients(e)
	none.of = server(e)
	refused(t, server(e), engine.Settings{Remote: none}, "no clients")
}
