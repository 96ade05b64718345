package message

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Cohort is the clients as the server sees them: instructions go in, replies come out. It is the only interface between
// the two sides, so that one round loop serves a simulation in one process and clients on other machines.
type Cohort interface {
	// Run sends one instruction to the clients it names and returns the replies that came, sorted by client. A client
	// that did not answer is missing. An error ends the run.
	Run(ctx context.Context, o Instruction) ([]Reply, error)
	// Accept tells clients that their replies to this round count, so that they keep the new state.
	Accept(round int, clients []int) error
}

// Kind is the kind of an instruction.
type Kind string

const (
	Train   Kind = "train"   // train and upload
	Compute Kind = "compute" // compute a statistic
	// test with the shared parameters sent and with the client's own
	Test     Kind = "test"
	Validate Kind = "validate" // test on the validation data; a client without any answers with no examples
	// forget everything, take Instruction.Steps steps from the shared parameters, and be tested
	Adapt Kind = "adapt"
)

// Tests reports whether replies to instructions of this kind are Scores. Such instructions change no client's state.
func (k Kind) Tests() bool { return k == Test || k == Validate || k == Adapt }

// Instruction is one message from the server. Only names, numbers and tensors travel.
type Instruction struct {
	Kind      Kind
	Round     int
	Statistic string // name of the statistic to answer
	Set       string // name of the evaluation set to be tested on, of Test; empty for the client's own test data
	// Confusion, of Test, also asks for the statistics that reveal labels, such as the confusion matrix. A client may
	// withhold them.
	Confusion bool
	Steps     int   // to take before the test, of Adapt
	Clients   []int // who is to answer, sorted
	Total     int   // how many clients there are
	Shared    tensor.Map
	Broadcast tensor.Map
	PerClient map[int]tensor.Map // extras for one client, by client
	// Guarded are the forms of the tensors from the clients' Guard, which replace all others. The layer that opens them
	// checks them. It is nil where a reply is not for a guard, and is not sent.
	Guarded tensor.Specs
	// Codec reads compressed uploads; nil where uploads are not compressed. It is not sent.
	Codec method.Codec
	// Classes is the number of classes of the test, to check replies; 0 where it is unknown. It is not sent.
	Classes int
}

// Labels reports whether replies may have statistics that reveal labels.
func (o Instruction) Labels() bool { return o.Kind == Test && o.Confusion }

// ForClient returns the instruction as one client gets it.
func (o Instruction) ForClient(client int) Instruction {
	one := o
	one.Clients = []int{client}
	one.PerClient = nil
	if e, ok := o.PerClient[client]; ok {
		one.PerClient = map[int]tensor.Map{client: e}
	}
	return one
}

// Reply is one message from a client.
type Reply struct {
	Client   int
	Upload   method.Upload // of Train and Compute
	Stats    Stats         // of Train
	Scores   Scores        // of instructions that test
	Up, Down int           // bytes of the message and of the instruction it answers
	// Sum lists the clients whose mean the upload is, where a Cohort sees no upload of a single client; Client is then
	// method.AggregatedClient.
	Sum []int
	// Skipped says that a reply for several clients has no upload: there is no sum, and the round changes nothing. Its
	// warnings state the reason.
	Skipped bool
	Refused []Refusal          // clients whose messages a Cohort refused behind such a reply
	Notes   map[string]float64 // numbers for the round's record; may be nil
	// Warnings are lines for the record that state what is wrong with the round. They are not sent.
	Warnings []string
}

// GuardPart is the prefix of the names of tensors that are for a Guard or from one. Methods never see them.
const GuardPart = "guard"

// Guard protects uploads before they leave a client. It runs on the client's side, over every transport.
type Guard interface {
	// Answer answers an instruction of kind Compute that is for the guard; ok is false for statistics of the method.
	Answer(client int, o Instruction) (answer tensor.Map, ok bool, err error)
	// Protect replaces the upload and the training statistics of a client.
	Protect(client int, o Instruction, up *method.Upload, stats *Stats) error
}

// Scores are a client's test results: the sufficient statistics of each evaluation. An evaluation that its method does
// not have is nil.
type Scores struct {
	Examples int `json:"examples"`
	// it never trained: it has no parameters of its own, and used first values for them
	Untrained bool `json:"untrained,omitempty"`
	// with the server's shared parameters and its own private ones
	Global   metrics.Statistics `json:"global,omitempty"`
	Personal metrics.Statistics `json:"personal,omitempty"` // with the parameters that it last trained itself
}

// Of returns the statistics of one evaluation; nil where it is absent.
func (s Scores) Of(v method.View) metrics.Statistics {
	if v == method.PersonalView {
		return s.Personal
	}
	return s.Global
}

// tables are the statistics that are tensors, by evaluation and name.
func (s Scores) tables() tensor.Map {
	m := tensor.Map{}
	for _, v := range []method.View{method.GlobalView, method.PersonalView} {
		m.Put(v.String(), s.Of(v).Tables())
	}
	return m
}

// addTables adds the statistics that came as tensors.
func (s Scores) addTables(m tensor.Map) error {
	if err := onlyUnder(m, method.GlobalView.String(), method.PersonalView.String()); err != nil {
		return err
	}
	for _, v := range []method.View{method.GlobalView, method.PersonalView} {
		of := m.WithoutPrefix(v.String())
		if len(of) > 0 && s.Of(v) == nil {
			return fmt.Errorf("the reply has the unexpected statistics %.100q: it lacks the %v evaluation",
				of.Names(), v)
		}
		if err := s.Of(v).AddTables(of); err != nil {
			return err
		}
	}
	return nil
}

func UploadsOf(replies []Reply) []method.Upload {
	out := make([]method.Upload, len(replies))
	for i, r := range replies {
		out[i] = r.Upload
	}
	return out
}

// ClientsOf lists the clients behind replies, sorted.
func ClientsOf(replies []Reply) []int {
	var out []int
	for _, r := range replies {
		if r.Sum != nil {
			out = append(out, r.Sum...)
		} else {
			out = append(out, r.Client)
		}
	}
	slices.Sort(out)
	return out
}

// Stats are the numbers of one client's turn.
type Stats struct {
	Loss  float64 // mean over its steps
	Steps int
	Terms *LossTerms // nil where they are not measured
}

// Indices are 0 to n-1.
func Indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
