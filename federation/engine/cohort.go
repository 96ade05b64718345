package engine

import (
	"context"
	"fmt"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Cohort is the clients as the server sees them: orders go in, replies come out. It is the only seam between the two
// sides, so that one round loop serves a simulation in one process and clients on other machines.
type Cohort interface {
	// Run sends one order to the clients it names and gives the replies that came, sorted by client. A client that
	// did not answer is missing; an error means that the round cannot go on.
	Run(ctx context.Context, o Order) ([]Reply, error)
	// Accept tells clients that what they returned for this round counts, so that they keep the state that goes with
	// it.
	Accept(round int, clients []int) error
}

// Kind is what an order asks for.
type Kind string

const (
	Train Kind = "train" // train and upload
	Ask   Kind = "ask"   // answer a survey
	Test  Kind = "test"  // test with the shared parameters sent and with the client's own; see also Validate and Adapt
)

// Order is one message from the server. Only names, numbers and tensors travel.
type Order struct {
	Kind    Kind
	Round   int
	Survey  string // name of the survey to answer
	Exam    string // name of the evaluation set to be tested on, of Test; empty for the client's own test data
	Counts  bool   // tell which class was taken for which, of Test; a client may not
	Steps   int    // to take before the test, of Adapt
	Clients []int  // who is to answer, sorted
	Of      int    // how many clients there are
	Shared  tensor.Map
	Down    tensor.Map
	Each    map[int]tensor.Map // extras for one client, by client
	// Sealed tells that uploads come as the clients' Guard seals them, to be checked by what opens them. It does not
	// travel.
	Sealed bool
}

// For is the order as one client gets it.
func (o Order) For(client int) Order {
	one := o
	one.Clients = []int{client}
	one.Each = nil
	if e, ok := o.Each[client]; ok {
		one.Each = map[int]tensor.Map{client: e}
	}
	return one
}

// Reply is one message from a client.
type Reply struct {
	Client   int
	Upload   method.Upload // of Train and Ask
	Stats    Stats         // of Train
	Scores   Scores        // of orders that test
	Up, Down int           // bytes of the message and of the order it answers
	// Sum are the clients of which the upload is the mean, where a Cohort sees no upload of one client alone; Client is
	// then method.Summed.
	Sum   []int
	Notes map[string]float64 // numbers for the round's record; may be nil
	// Warnings are lines for the record that say what is wrong with the round. They do not travel.
	Warnings []string
}

// GuardPart is what the names of tensors begin with that are for a Guard, or from one. Methods never see them.
const GuardPart = "guard"

// Guard stands between a client and what leaves it. It is asked on the client's side, whatever carries the messages.
type Guard interface {
	// Answer answers an order of kind Ask that is for the guard; ok is false for surveys of the method.
	Answer(client int, o Order) (answer tensor.Map, ok bool, err error)
	// Seal replaces what a client uploads and tells of its training.
	Seal(client int, o Order, up *method.Upload, stats *Stats) error
}

// Scores are a client's test results. An evaluation that its method does not have is absent.
type Scores struct {
	Examples int `json:"examples"`
	// it never trained: it has no parameters of its own, and used first values for them
	Untrained bool  `json:"untrained,omitempty"`
	Global    *Hits `json:"global,omitempty"`   // with the server's shared parameters and its own private ones
	Personal  *Hits `json:"personal,omitempty"` // with the parameters that it last trained itself
}

// Of is one of the two; nil where it is absent.
func (s Scores) Of(v method.View) *Hits {
	if v == method.PersonalView {
		return s.Personal
	}
	return s.Global
}

// Hits are how well a client's examples were classified. Right is a count, not a rate, so that it adds up.
type Hits struct {
	Right int     `json:"right"`
	Own   int     `json:"own"` // right answers where only the classes compete that the client trains on
	F1    float64 `json:"f1"`  // macro-F1 over the classes of the examples

	Calibration Calibration `json:"calibration,omitempty"`

	counts *tensor.Tensor // [K,3], see confusion; nil where nobody asked
}

// Answer does what an order asks of one client that remembers s. next is what the client is to remember if its upload
// counts, nil where that changes nothing.
func (w *Worker) Answer(ctx context.Context, c *Client, o Order, s State) (r Reply, next *State, err error) {
	r.Client = c.ID
	switch o.Kind {
	case Train:
		var after State
		r.Upload, after, r.Stats, err = w.runTrain(ctx, c, o, s, w.shared)
		next = &after
	case Ask:
		r.Upload, err = w.RunSurvey(c, o, s)
	case Test:
		if r.Scores, err = w.RunTest(ctx, c, o, s); err == nil && o.Counts && w.Confusion {
			r.Upload.Extra = r.Scores.counts()
		}
	case Validate:
		r.Scores, err = w.validate(ctx, c, o, s)
	case Adapt:
		r.Scores, err = w.adapt(ctx, c, o)
	default:
		err = fmt.Errorf("unknown order %q", o.Kind)
	}
	if err == nil {
		if err = finite("upload ", uploadTensors(r.Upload)); err != nil {
			err = fmt.Errorf("round %d, client %d: %w", o.Round+1, c.ID, err)
		}
	}
	if err != nil {
		return Reply{Client: c.ID}, nil, err
	}
	return r, next, nil
}
