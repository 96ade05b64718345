package client

import (
	"slices"
	"strings"
	"sync/atomic"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
)

// program is a compiled graph of a method.
type program struct {
	number int64 // that no other graph of this process has
	// session compiles the graph for some clients in one run, once for each number of them.
	session func(clients int) (*ort.Session, error)
	// several builds the outputs for some clients in one run, each client's under ofClient; nil where each goes alone.
	several     func(clients int) ([]graph.Output, error)
	inputs      []string
	hosts       []method.HostCall
	params      []string // inputs with a gradient, output "grad/NAME"
	terms       []string // terms of the loss, outputs "term/TERM/loss" and "term/TERM/grad/NAME"
	auxLosses   []string // of method.Scope.AuxLoss, outputs "aux/NAME/grad/PARAMETER"
	largeInputs []string // of spec.LargeInputs, which a batch must hold beside image and label
	bytes       int      // of all outputs, as far as their shapes are known
}

// lastProgram is the number of the last program.
var lastProgram atomic.Int64

// Prefixes of the names of inputs and outputs. prefixInput is that of inputs that plan.prefix computes.
const (
	prefixInput = "fixed/"
	lossOutput  = "loss"
	valueOutput = "value"
	gradOutput  = "grad/"
	termOutput  = "term/"
	auxOutput   = "aux/"
)

// readsRows reports whether the program reads rows of data.
func (p *program) readsRows() bool {
	return slices.ContainsFunc(p.inputs, spec.IsImageInput) || slices.ContainsFunc(p.hosts,
		func(h method.HostCall) bool {
			return slices.ContainsFunc(h.Of, spec.IsImageInput)
		})
}

// of returns the program with the host functions of a scope.
func (p *program) of(s *method.Scope) *program {
	if p == nil {
		return nil
	}
	own := *p
	own.hosts = p.hostsOf(s)
	return &own
}

// hostsOf lists the host functions of a scope that the program reads.
func (p *program) hostsOf(s *method.Scope) []method.HostCall {
	return slices.DeleteFunc(slices.Clone(s.Hosts()), func(h method.HostCall) bool {
		return !slices.Contains(p.inputs, method.HostInput+"/"+h.Name)
	})
}

// inputsOf lists the names of inputs of a kind.
func (p *plan) inputsOf(kind string) (out []string) {
	for _, q := range p.programs() {
		for _, in := range q.inputs {
			if name, ok := strings.CutPrefix(in, kind+"/"); ok {
				out = append(out, name)
			}
		}
	}
	return out
}

// Reads lists the inputs of spec.LargeInputs that the method reads of a client's images besides their features. clients
// is the number of clients.
func (w *Worker) Reads(c *spec.Client, clients int) []string {
	return spec.Reads(w.Method, w.Task(c, clients))
}
