package client

import (
	"context"
	"fmt"
	"maps"
	"math"

	"promptfed/federation/attack"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// turn is one client's local training in a round.
type turn struct {
	client      *spec.Client
	instruction message.Instruction
	local       *method.Local
	state       message.ClientState
	plan        *plan
	tr          trace.Client

	hostValues callbackValues
	held       ort.Values // inputs that all steps share
	opt        *optim.Optimizer
	meter      *termMeter
	pace       spec.Training
	maxSteps   int     // 0 for no bound
	epoch      int     // counted from 0
	batches    [][]int // of the epoch, that no step has used yet
	rows       []int   // of the current step
	loss       float64 // of all steps together
}

// begin starts a turn, with a fresh optimizer or with the state of the shared one.
func (w *Worker) begin(ctx context.Context, client *spec.Client, instruction message.Instruction,
	state message.ClientState) (*turn, error) {
	w.compiler.initial.begin(instruction.Round)
	local, state := w.Begin(ctx, client, instruction, state)
	plan, err := w.compiler.step(ctx, client.Backbone, local.Task)
	if err != nil {
		return nil, err
	}

	rate, err := w.Experiment.Training.Schedule.New(w.Experiment.Training.Optim.LR)
	if err != nil {
		return nil, err
	}

	local.LR = rate(instruction.Round)
	turn := &turn{client: client, instruction: instruction, local: local, state: state, plan: plan,
		tr:         trace.NewClient(w.Settings.Tracer, instruction.Round, client.ID),
		hostValues: callbackValues{}, held: ort.Values{}, epoch: -1}
	turn.tr.PutAll("down", local.Broadcast)
	turn.tr.PutAll("kept", local.State)
	sent := maps.Clone(local.Broadcast)
	turn.recordDraws("")
	if err := w.Experiment.Method.Begin(local); err != nil {
		return nil, err
	}

	turn.traceBegin(sent)
	if turn.meter, err = w.meter(ctx, client, local.Task, turn.tr); err != nil || len(plan.learned) == 0 {
		return turn, err
	}

	turn.pace, turn.maxSteps = w.Experiment.Training.Of(client.ID)
	if turn.opt, err = optim.New(w.Experiment.Training.Optim); err != nil {
		return nil, err
	}

	if err := w.shared.load(turn.opt, parameters(local)); err != nil {
		return nil, err
	}

	if turn.tr.Enabled() {
		turn.tr.PutAll("optimizer", turn.opt.State())
	}

	return turn, nil
}

// next returns the rows of the next step; nil after the last.
func (t *turn) next() []int {
	if t.maxSteps > 0 && t.local.Steps == t.maxSteps {
		return nil
	}

	for len(t.batches) == 0 {
		if t.opt == nil || t.epoch+1 >= t.pace.Epochs {
			return nil
		}
		t.epoch++
		t.local.Epoch = t.epoch
		t.local.Draws.WithoutRecording(func() { t.batches = t.pace.Batches(t.local.Data.Order(t.local.Rand)) })
	}

	rows := t.batches[0]
	t.batches = t.batches[1:]
	return rows
}

// end returns the upload, and the client's state if the server takes the upload.
func (w *Worker) end(turn *turn) (up method.Upload, state *message.ClientState, stats message.Stats, err error) {
	local := turn.local
	turn.recordDraws("")
	if turn.opt != nil {
		if local.Steps == 0 {
			return up, state, stats, fmt.Errorf("the client's data gave no batch in %d epochs", turn.pace.Epochs)
		}
		w.shared.keep(turn.opt, parameters(local))
		turn.opt.Reset()
		stats = message.Stats{Loss: turn.loss / float64(local.Steps), Steps: local.Steps, Terms: turn.meter.mean()}
		if err = stats.Terms.Within(math.MaxFloat64); err != nil {
			return up, state, stats, err
		}
	}

	local.Data = turn.client.Train
	up = method.Upload{Client: turn.client.ID, N: turn.client.Train.Len(), Shared: local.Shared, Extra: tensor.Map{}}
	if err = w.Experiment.Method.Finish(local, &up); err != nil {
		return up, state, stats, err
	}

	w.Experiment.Attack.Upload(turn.instruction.Round, local.Received, &up, local.Draws)
	if codec := w.Experiment.Method.Codec(); codec != nil {
		if err = codec.Pack(local, &up); err != nil {
			return up, state, stats, err
		}
	}

	turn.tr.PutAll("upload", up.Shared, up.Extra)
	if n := local.Draws.Unrecorded(); n > 0 {
		return up, state, stats, fmt.Errorf("the trace lacks %d of the random numbers that the method drew in this "+
			"turn; draw them with Local.Draws", n)
	}

	if w.Settings.Guard != nil {
		err = w.Settings.Guard.Protect(turn.client.ID, turn.instruction, &up, &stats)
	}

	own := local.Own
	if own == nil {
		own = maps.Clone(local.Shared) // nobody changes an upload in place
	}

	return up, &message.ClientState{Private: local.Private, Own: own, Method: local.State}, stats, err
}

// failed adds the round, the client and the step to an error.
func (t *turn) failed(err error) error {
	return ofTurn(t.client, t.instruction, fmt.Errorf("step %d: %w", t.local.Steps, err))
}

func ofTurn(client *spec.Client, instruction message.Instruction, err error) error {
	return fmt.Errorf("round %d, client %d: %w", instruction.Round+1, client.ID, err)
}

// Turns executes the jobs of one group of Groups. next has by job the client's state if its upload counts, nil for an
// unchanged one. It leaves the check of uploads to the server.
func (w *Worker) Turns(ctx context.Context, jobs []Job) (replies []message.Reply, next []*message.ClientState,
	err error) {
	replies, next = make([]message.Reply, len(jobs)), make([]*message.ClientState, len(jobs))
	turns := make([]*turn, len(jobs))
	for i, j := range jobs {
		s, err := j.State()
		if err != nil {
			return nil, nil, err
		}
		if j.Instruction.Kind != message.Train {
			replies[i], next[i], err = w.Execute(ctx, j.Client, j.Instruction, s)
			return replies, next, err
		}
		if turns[i], err = w.begin(ctx, j.Client, j.Instruction, s); err != nil {
			return nil, nil, ofTurn(j.Client, j.Instruction, err)
		}
	}

	if err := w.train(ctx, turns); err != nil {
		return nil, nil, err
	}

	for i, t := range turns {
		r := &replies[i]
		r.Client = t.client.ID
		if r.Upload, next[i], r.Stats, err = w.end(t); err != nil {
			return nil, nil, ofTurn(t.client, t.instruction, err)
		}
	}

	return replies, next, nil
}

// Train trains one client, whatever the kind of the instruction.
func (w *Worker) Train(ctx context.Context, client *spec.Client, instruction message.Instruction,
	s message.ClientState) (message.Reply, message.ClientState, error) {
	instruction.Kind = message.Train
	r, next, err := w.Turns(ctx, []Job{{client, instruction, Remembers(s)}})
	if err != nil {
		return message.Reply{Client: client.ID}, s, err
	}
	return r[0], *next[0], nil
}

// Pretrain trains the shared parameters on synthetic data. Private parameters are drawn as those of the first client,
// and dropped. Nothing is merged, so the server's other state is as the method starts it. Nothing is sent either, so
// that what wrappers, the codec and the guard make of an upload does not count.
func (w *Worker) Pretrain(ctx context.Context, synthetic *spec.Synthetic, instruction message.Instruction) (tensor.Map,
	error) {
	first := *w
	first.Settings.Tracer, first.Settings.Terms, first.Settings.Guard, first.shared = nil, false, nil, nil
	first.pretrains, first.Experiment.Attack = true, attack.Attack{}
	first.Experiment.Training.Epochs, first.Experiment.Training.Overrides = synthetic.Epochs, nil
	first.Experiment.Training.Schedule = optim.Schedule{Kind: "constant"}
	only := &spec.Client{Backbone: synthetic.Backbone, Train: synthetic.Data}
	trained, err := first.begin(ctx, only, instruction, message.ClientState{})
	if err == nil {
		err = first.train(ctx, []*turn{trained})
	}

	if err == nil {
		_, _, _, err = first.end(trained) // FedMGP moves what it trained to shared parameters at its end
	}

	if err != nil {
		return nil, err
	}

	return trained.local.Shared, message.CheckFinite("parameter ", trained.local.Shared)
}
