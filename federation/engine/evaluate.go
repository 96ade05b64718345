package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"promptfed/federation/method"
	"promptfed/runtime/optim"
)

// Evaluate says what is tested beside the clients' test data, and which round is the result.
type Evaluate struct {
	Validate  bool  // test on the clients' validation data in every tested round
	BestVal   bool  // the result is the round with the best validation accuracy, not the last
	Patience  int   // tested rounds without a better validation accuracy after which the run stops; 0 for none
	SetsEvery int   // rounds between tests on the evaluation sets; 0 for the result only
	NewSteps  []int // steps that a client that never trains takes before it is tested, a test for each
	Confusion bool  // count which class was taken for which, of the result
	ZeroShot  bool  // compare hand-written prompts with chance before round 0
}

// Kinds of orders that test, beside Test. Their replies are Scores, and change nothing that a client remembers.
const (
	Validate Kind = "validate" // test on the validation data; a client without any answers with no examples
	Adapt    Kind = "adapt"    // forget everything, take Order.Steps steps from the shared parameters, and be tested
)

// Tests tells whether the replies to orders of this kind are Scores.
func (k Kind) Tests() bool { return k == Test || k == Validate || k == Adapt }

// ErrNoValidation says how to get validation data.
var ErrNoValidation = errors.New("no client has validation data, which eval.select: best-val and train.patience go " +
	"by; keep a share of the " +
	"training data with data.val_share: 0.2, set data.split: pooled (60/20/20 inside each client), or with synthetic " +
	"images data.generator.val")

// validate tests a client on its validation data.
func (w *Worker) validate(ctx context.Context, c *Client, o Order, s State) (Scores, error) {
	if c.Val == nil || c.Val.Len() == 0 {
		return Scores{}, nil
	}
	quiet, other := *w, *c
	quiet.Tracer, other.Test = nil, c.Val
	r, err := quiet.RunTest(ctx, &other, o, s)
	if err != nil {
		err = fmt.Errorf("validation: %w", err)
	}
	return r, err
}

// adapt tests a client that never trains: it takes some steps of the method's own local training on its training data,
// from the shared parameters and its own first private ones, at the learning rate before the schedule. Nothing is
// remembered.
func (w *Worker) adapt(ctx context.Context, c *Client, o Order) (Scores, error) {
	alone, s := *w, State{}
	alone.Tracer, alone.Guard, alone.Terms = nil, nil, false
	if o.Steps > 0 {
		alone.Train = w.Train.steps(c.ID, o.Steps)
		var err error
		if _, s, _, err = alone.RunTrain(ctx, c, o, s); err != nil {
			return Scores{}, fmt.Errorf("%w; a new client cannot take steps with this method here: set "+
				"eval.new_steps: [0]", err)
		}
	}
	return alone.RunTest(ctx, c, o, s)
}

// steps is the training of one client for so many steps at the learning rate before the schedule.
func (t Training) steps(client, n int) Training {
	p := Pace{}
	if len(t.Each) > 0 {
		p = t.Each[client%len(t.Each)]
	}
	p.Epochs, p.Steps = n, n // an epoch has a step or more
	t.Each, t.Schedule = []Pace{p}, optim.Schedule{}
	return t
}

// known are the clients that take part: all but those that never train.
func (p Plan) known() []int {
	return slices.DeleteFunc(all(p.Clients), func(id int) bool { return slices.Contains(p.New, id) })
}

// adapt tests the clients that never train, after each number of steps. What counts is what each has of its own after
// them.
func (s *Server) adapt(ctx context.Context, test Order, rec *Record) error {
	view := method.PersonalView
	if !s.has.Personal {
		view = method.GlobalView
	}
	for _, steps := range s.Evaluate.NewSteps {
		o := test
		o.Kind, o.Steps, o.Clients = Adapt, steps, s.Plan.New
		replies, err := s.Cohort.Run(ctx, o)
		if err != nil {
			return err
		}
		if rec.NewClients == nil {
			rec.NewClients = map[string]Tested{}
		}
		rec.NewClients[strconv.Itoa(steps)] = tested(s.has, view, replies, o.Clients, s.Plan.Peers)
	}
	return nil
}
