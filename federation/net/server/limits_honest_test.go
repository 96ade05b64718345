package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/wire"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// honest checks the uploads of honest clients in this process like a server.
type honest struct {
	message.Cohort
	t   *testing.T
	hub *Server
}

func (c *honest) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies, err := c.Cohort.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, r := range replies {
		if o.Kind != message.Train && o.Kind != message.Compute {
			break
		}
		said, body, err := wire.ReplyOf(o.Kind, r)
		forms, most, other := c.hub.forms(o, r.Client)
		if err := errors.Join(err, other); err != nil {
			c.t.Fatal(err)
		}
		if _, err := c.hub.decodeReply(o, forms, r.Client, said, body); err != nil || most < int64(len(body)) {
			c.t.Errorf("round %d, client %d: %d bytes of at most %d: %v", o.Round, r.Client, len(body), most, err)
		}
		terms := func(f tensor.Spec) bool { return f.Optional }
		_, exact, err := message.MaxEncodedSize(slices.DeleteFunc(forms, terms))
		if err != nil || int(exact) != r.UploadSize() {
			c.t.Errorf("round %d, client %d: %d bytes without terms, not %d: %v", o.Round, r.Client, r.UploadSize(),
				exact, err)
		}
	}
	kept, err := c.hub.applyLimits(o, replies)
	if l := c.hub.Report(); len(l.Refused)+len(l.Cut) > 0 {
		c.t.Errorf("round %d: an honest client is limited: %+v", o.Round, l)
	}
	return kept, err
}

// runHonest runs an experiment and checks that the limits change nothing.
func runHonest(t *testing.T, e *spec.Experiment, set engine.Settings) {
	t.Helper()
	rate, err := e.Training.Schedule.New(e.Training.Optim.LR)
	if err != nil {
		t.Fatal(err)
	}
	h := newServer(Settings{Method: e.Method, Rate: rate, Clients: len(e.Clients)})
	for i, c := range e.Clients {
		h.change(i, func(m *member) {
			m.joined, m.Examples, m.Participant.Task = true, c.Train.Len(), c.Backbone.Task()
			t := &m.Participant.Task
			t.Client, t.Clients, t.Classes = i, len(e.Clients), len(e.Classes)
		})
	}
	set.Wrap = func(cohort message.Cohort) message.Cohort { return &honest{cohort, t, h} }
	if _, err := engine.Run(context.Background(), e, set); err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Sorted(maps.Keys(h.longest)) {
		t.Logf("%s was at most %.1f times the usual norm", kind, h.longest[kind])
	}
}

// Every method declares exactly the tensors and terms of the loss that its clients upload, and no upload of an honest
// client is refused or reduced: for every method and wrapper, with clients of 2 to 20 examples, four or two of which
// train in a round, and with a learning rate that starts at a hundredth of its later value.
func TestHonestUploads(t *testing.T) {
	for _, entry := range methods.Table() {
		for _, participation := range []float64{1, 0.5} {
			t.Run(fmt.Sprint(entry.Name, " ", participation), func(t *testing.T) {
				stack := []string{entry.Name}
				if entry.Wrapper() {
					stack = []string{"promptfl", entry.Name}
				}
				var options map[string]any
				if entry.Name == "fedtpg" {
					options = map[string]any{"heads": 2} // the prompt has width 6
				}
				m := enginetest.Build(t, stack[0], stack[1:], options)
				e := &spec.Experiment{Name: "toy", MethodName: strings.Join(stack, "+"), Method: m,
					Classes: methodtest.Classes, Template: "a {}.", Clients: methodtest.ClientsOfOneBackbone(20, 5, 6,
						2), Training: spec.Training{Epochs: 2, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.05,
						Momentum: 0.9}, Schedule: optim.Schedule{Kind: "cosine", TMax: 6, Warmup: 1, WarmupLR: 5e-4}},
					Plan: spec.Plan{Rounds: 6, TestEvery: 2, Seed: 5, Participation: participation}}
				runHonest(t, e, engine.Settings{Client: client.Settings{Terms: true}})
			})
		}
	}
}
