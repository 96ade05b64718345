package record

import (
	"maps"
	"slices"

	"promptfed/federation/method"
)

// Evaluable lists the evaluations that a method has. Global needs class scores that depend on something that the server
// sends: shared parameters or extras. Personal needs scores that depend on something of the client's own: its
// parameters, shared ones as it last trained them, its state, or its examples. Scores that depend on neither, such as
// those of hand-written prompts, are the same for everybody and count as both.
type Evaluable struct {
	Global, Personal bool
	Reads            []string // what the scores depend on beside the image, of ReadsShared and so on, sorted
}

// EvaluableOf reads the inputs of the graph of a method's class scores, and those of its host functions. The result is
// the same for all clients of an experiment.
func EvaluableOf(m method.Method, task method.ClientSpec) Evaluable {
	scope := method.ScopeOf(m, task)
	shared, reads := method.SharedNames(scope.Params()), map[string]bool{}
	for _, in := range scope.Reads(m.Logits(scope)) {
		switch in.Kind {
		case method.ParamInput, method.ReceivedInput, method.BeforeInput:
			if slices.Contains(shared, in.Name) {
				reads[ReadsShared] = true
			} else {
				reads[ReadsPrivate] = true
			}
		case method.BroadcastInput:
			reads[ReadsServer] = true
		case method.StateInput:
			reads[ReadsPrivate] = true
		case method.ClientInput:
			if in == method.MemoryImage {
				reads[ReadsExamples] = true
			}
		}
	}

	e := Evaluable{Reads: slices.Sorted(maps.Keys(reads))}
	e.Global = reads[ReadsShared] || reads[ReadsServer] || len(reads) == 0
	e.Personal = reads[ReadsShared] || reads[ReadsPrivate] || reads[ReadsExamples] || len(reads) == 0
	return e
}

// Views are the values of Plan.View.
func Views() []string {
	return []string{MethodView, method.GlobalView.String(), method.PersonalView.String()}
}

// Headline resolves Plan.View: global and personal name an evaluation. Another value stands for the method's own
// evaluation, or for the only one that it has.
func (e Evaluable) Headline(view string, m method.Method) method.View {
	switch {
	case view == method.GlobalView.String():
		return method.GlobalView
	case view == method.PersonalView.String() || !e.Global:
		return method.PersonalView
	case !e.Personal:
		return method.GlobalView
	}

	return m.View()
}

const (
	ReadsShared   = "shared"   // shared parameters
	ReadsServer   = "server"   // extras that the server sends
	ReadsPrivate  = "private"  // private parameters, or what the client kept
	ReadsExamples = "examples" // the client's own training examples
)

// MethodView is the value of Plan.View that selects the evaluation of the method's paper for the headline.
const MethodView = "method"
