package client

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// program is a compiled graph of a method: what it reads, what the host computes for it, what it gives.
type program struct {
	session func() (*ort.Session, error)
	inputs  []string
	hosts   []method.HostCall
	params  []string // those with a gradient, output "grad/NAME"
	terms   []string // of which it gives value and gradients, outputs "term/TERM/loss" and "term/TERM/grad/NAME"
	also    []string // what a batch must hold beside image and label
	byRow   bool     // its value has a row for each example
	beside  []string // losses of method.Scope.AuxLoss, outputs "beside/NAME/grad/PARAMETER"
	most    int      // rows that it runs on at a time, where memory bounds them; else 0
	// fixed computes the parts of the value that depend on no row of data, which are inputs of this one, fixedInput N;
	// nil where there are none
	fixed *program
	// received is the same step for shared parameters as the server sent them, where its fixed part is most of what
	// precedes the images; nil where it is not
	received *program
	bytes    int   // of all that it gives, as far as its shape is known
	number   int64 // that no other compiled graph of this process has
	// constants are those of method.Scope.Note, for traces
	constants tensor.Map
	apart     bool // steps of several clients gain nothing in one run, see spec.Apart
}

// lastProgram counts what was compiled.
var lastProgram atomic.Int64

// fixedInput is what the names of inputs begin with that program.fixed computes.
const fixedInput = "fixed/"

// rows tells whether the program reads rows of data.
func (p *program) rows() bool {
	return slices.ContainsFunc(p.inputs, func(in string) bool { return spec.OfImage(in) }) ||
		slices.ContainsFunc(p.hosts, func(h method.HostCall) bool { return slices.ContainsFunc(h.Of, spec.OfImage) })
}

// Reads lists what the method needs of a client's images beside their features, of spec.LargeInputs. clients is their
// number.
func (w *Worker) Reads(c *spec.Client, clients int) []string {
	return spec.Reads(w.Method, w.Task(c, clients))
}

const (
	lossOutput   = "loss"
	valueOutput  = "value"
	gradOutput   = "grad/"
	termOutput   = "term/"
	besideOutput = "beside/"
)

// reads tells whether the program uses current values of any of some parameters.
func (p *program) reads(params tensor.Map) bool {
	used := func(in string) bool {
		name, ok := strings.CutPrefix(in, method.ParamInput+"/")
		return ok && params[name] != nil
	}
	return slices.ContainsFunc(p.inputs, used) || p.fixed != nil && p.fixed.reads(params) ||
		slices.ContainsFunc(p.hosts, func(h method.HostCall) bool { return slices.ContainsFunc(h.Of, used) })
}

// of is the program with the host functions of a scope.
func (p *program) of(s *method.Scope) *program {
	if p == nil {
		return nil
	}
	own := *p
	own.hosts, own.fixed, own.received, own.constants = p.hostsOf(s), p.fixed.of(s), p.received.of(s), s.Constants()
	return &own
}

// inputsOf are the names of inputs of a kind, or that input itself.
func (p *program) inputsOf(kind string) (out []string) {
	for ; p != nil; p = p.fixed {
		for _, in := range p.inputs {
			if name, ok := strings.CutPrefix(in, kind+"/"); ok || in == kind {
				out = append(out, name)
			}
		}
	}
	return out
}

// hostsOf are the host functions of a scope that the program reads.
func (p *program) hostsOf(s *method.Scope) []method.HostCall {
	return slices.DeleteFunc(slices.Clone(s.Hosts()), func(h method.HostCall) bool {
		return !slices.Contains(p.inputs, method.HostInput+"/"+h.Name)
	})
}

// run computes all that the program gives.
func (p *program) run(ctx context.Context, f feed) (tensor.Map, error) {
	session, err := p.session()
	if err != nil {
		return nil, err
	}
	return session.RunWith(ctx, f.now, f.held)
}
