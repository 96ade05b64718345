package message

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// Cohort is the clients as the server sees them: instructions go in, replies come out. It is the only interface between
// the two sides. One round loop therefore serves simulated clients and clients on other machines, in real and in
// simulated time, with and without secure aggregation: each of these is a Cohort, or a layer around one.
type Cohort interface {
	// Participants lists all clients by number. A client that never joined is not Joined; one that left stays Joined.
	Participants() []Participant
	// Traits returns what the server must know of the clients. It is the same during a run.
	Traits() Traits
	// Run sends one instruction to the clients it names and returns the replies that came. A client that did not answer
	// is missing. An error ends the run.
	Run(ctx context.Context, instruction Instruction) ([]Reply, error)
	// Accept tells clients that their replies to this round count, so that they keep the new state.
	Accept(round int, clients []int) error
	// Rejected tells the cohort that a round leaves a client out, because of its reply or of how it joined, and why.
	Rejected(round, client int, why error)
	// Report returns what happened since the last call beside the replies.
	Report() Report
	// Save returns the state of the cohort after a committed round. Load restores it when a run is resumed.
	Save() (Saved, error)
	Load(Saved) error
}

// Traits are the facts about a cohort on which the server's work depends.
type Traits struct {
	// Claimed means that clients are on machines of others: they join and leave, and nothing they say is trusted. The
	// server leaves out a client over whose words the method fails. Otherwise clients are the same during a run, and
	// such an error is one of the program and ends it.
	Claimed bool
	// Summed means that the server sees no upload of a single client, but one for several: see Reply.Sum.
	Summed bool
}

// Report describes a round beside its replies.
type Report struct {
	LimitedClients
	Simulated *SimulatedTime // nil without simulated time, and where no turn took any
	Up, Down  int            // bytes of uploads that did not count, and of the instructions that they answered
}

// SimulatedTime is the simulated time of a round.
type SimulatedTime struct {
	Seconds   float64 `json:"seconds"`             // since the start of the run, at the end of the round
	Late      []int   `json:"late,omitempty"`      // clients whose upload came after the deadline, or too stale
	Staleness []int   `json:"staleness,omitempty"` // of the uploads that counted, in the order of clients
}

// Saved is the state of a cohort in a checkpoint: texts and tensors of its layers, by the layer's name.
type Saved struct {
	Texts   map[string]json.RawMessage
	Tensors tensor.Map
}

// Put adds the state of a layer.
func (s *Saved) Put(layer string, text any, tensors tensor.Map) error {
	b, err := json.Marshal(text)
	if err != nil {
		return err
	}

	if s.Texts == nil {
		s.Texts, s.Tensors = map[string]json.RawMessage{}, tensor.Map{}
	}

	s.Texts[layer] = b
	s.Tensors.Put(layer, tensors)
	return nil
}

// Get reads the state of a layer into text, and returns its tensors.
func (s Saved) Get(layer string, text any) (tensor.Map, error) {
	b, ok := s.Texts[layer]
	if !ok {
		return nil, fmt.Errorf("the checkpoint has no %s: the run began with other settings", layer)
	}

	if err := json.Unmarshal(b, text); err != nil {
		return nil, fmt.Errorf("the checkpoint's %s: %w", layer, err)
	}

	return s.Tensors.WithoutPrefix(layer), nil
}

// Kind is what an Instruction asks of a client.
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

// Reply is the answer to an Instruction. It is of one client, or of several where a layer of the cohort shows only
// their mean.
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

// WithoutGuardPart returns the tensors that are for a method.
func WithoutGuardPart(m tensor.Map) tensor.Map {
	out := tensor.Map{}
	for name, t := range m {
		if !strings.HasPrefix(name, GuardPart+"/") {
			out[name] = t
		}
	}
	return out
}

// Guard protects uploads before they leave a client. It runs on the client's side, over every transport.
type Guard interface {
	// Answer answers an instruction of kind Compute that is for the guard; ok is false for statistics of the method.
	Answer(client int, instruction Instruction) (answer tensor.Map, ok bool, err error)
	// Protect replaces the upload and the training statistics of a client.
	Protect(client int, instruction Instruction, up *method.Upload, stats *Stats) error
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

var views = []method.View{method.GlobalView, method.PersonalView}

// tables are the statistics that are tensors, by evaluation and name.
func (s Scores) tables() tensor.Map {
	m := tensor.Map{}
	for _, v := range views {
		m.Put(v.String(), s.Of(v).Tables())
	}
	return m
}

// addTables adds the statistics that came as tensors.
func (s Scores) addTables(m tensor.Map) error {
	if err := OnlyUnder(m, method.GlobalView.String(), method.PersonalView.String()); err != nil {
		return err
	}

	for _, v := range views {
		tables := m.WithoutPrefix(v.String())
		if len(tables) > 0 && s.Of(v) == nil {
			return fmt.Errorf("the reply has the unexpected statistics %.100q: it lacks the %v evaluation",
				tables.Names(), v)
		}
		if err := s.Of(v).AddTables(tables); err != nil {
			return err
		}
	}

	return nil
}

// UploadsOf returns the uploads of replies, in their order.
func UploadsOf(replies []Reply) []method.Upload {
	return convert.Slice(replies, func(r Reply) method.Upload { return r.Upload })
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

// ClientState holds the state of one client between rounds. A ClientState is never changed, only replaced.
type ClientState struct {
	Private tensor.Map // its private parameters
	Own     tensor.Map // the shared parameters as it last left them
	Method  tensor.Map // what the method kept
}

// Tensors returns the state as one map, under private/, own/ and kept/, for checkpoints and messages.
func (st ClientState) Tensors() tensor.Map {
	return tensor.Map{}.Put("private", st.Private).Put("own", st.Own).Put("kept", st.Method)
}

// ParseClientState reads what ClientState.Tensors returned.
func ParseClientState(m tensor.Map) (ClientState, error) {
	if err := OnlyUnder(m, "private", "own", "kept"); err != nil {
		return ClientState{}, err
	}
	return ClientState{Private: m.WithoutPrefix("private"), Own: m.WithoutPrefix("own"),
		Method: m.WithoutPrefix("kept")}, nil
}

// Participant is a client as the server knows it.
type Participant struct {
	Joined bool              `json:"joined"`
	Silent bool              `json:"-"`    // it missed so many deadlines that no round waits for it
	Task   method.ClientSpec `json:"task"` // sizes of its backbone, with Client, Clients and Classes
	Domain string            `json:"domain,omitempty"`
	Digest string            `json:"digest,omitempty"` // of the backbone's files; empty where it is not known
}

// CheckAveraged returns the reason why a client cannot be averaged with the first one: a shared parameter that the
// first one lacks, so that the server has none, or has with another shape. Both tasks must name the same numbers of
// clients and classes.
func CheckAveraged(task, first method.ClientSpec, base method.Method) error {
	shapes := map[string]string{}
	for _, p := range base.Params(first) {
		if p.Owner == method.Shared {
			shapes[p.Name] = fmt.Sprint(p.Shape)
		}
	}

	for _, p := range base.Params(task) {
		here, there := fmt.Sprint(p.Shape), cmp.Or(shapes[p.Name], "absent")
		if p.Owner == method.Shared && here != there {
			return fmt.Errorf("parameter %s is %s on client %d (backbone %s) and %s on client %d (backbone %s); it "+
				"cannot be averaged: use backbones with the same text width, and with the same image tower where its "+
				"prompts are shared", p.Name, here, task.Client, task.Backbone, there, first.Client, first.Backbone)
		}
	}

	return nil
}

// ClientInfos returns the clients as methods know them.
func ClientInfos(participants []Participant) []method.ClientInfo {
	var out []method.ClientInfo
	for _, m := range participants {
		p := method.ClientInfo{Domain: m.Domain}
		if m.Joined {
			p.Backbone, p.Dim = m.Task.Backbone, m.Task.Dim
		}
		out = append(out, p)
	}

	return out
}
