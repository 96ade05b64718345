package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// EvaluationSet is a test besides the clients' own test data: on classes that nobody trained on, on another data set,
// or on a domain that no client has. Every client is tested on it after the last round, with the server's parameters
// and with its own.
type EvaluationSet struct {
	Name     string
	Classes  []string             // empty for those of the experiment
	Template string               // of hand-written prompts; empty for that of the experiment
	Test     map[string]*Features // by name of backbone
}

// CheckEvaluationSets returns an error for sets that a client cannot be tested on.
func (e *Experiment) CheckEvaluationSets() error {
	names := map[string]bool{}
	for _, x := range e.EvaluationSets {
		if x.Name == "" || names[x.Name] {
			return fmt.Errorf("evaluation set %q: the name is empty or used twice; give every evaluation set a name "+
				"of its own", x.Name)
		}
		names[x.Name] = true
		classes := len(e.Classes)
		if len(x.Classes) > 0 {
			classes = len(x.Classes)
		}
		done := map[string]bool{}
		for _, c := range e.Clients {
			b := c.Backbone.Name()
			if done[b] {
				continue
			}
			done[b] = true
			d := x.Test[b]
			if d == nil || d.Len() == 0 {
				return fmt.Errorf("evaluation set %s has no examples for backbone %s", x.Name, b)
			}
			for _, y := range d.Labels() {
				if y < 0 || y >= int64(classes) {
					return fmt.Errorf("evaluation set %s has label %d, but there are %d classes", x.Name, y, classes)
				}
			}
			if len(x.Classes) == 0 {
				continue
			}
			if err := transfers(e.Method, e.Task(c)); err != nil {
				return fmt.Errorf("evaluation set %s: %w; remove the evaluation set or use another method", x.Name,
					err)
			}
		}
	}
	return nil
}

// transfers refuses methods whose class scores are bound to the classes that they were trained on.
func transfers(m method.Method, task method.ClientSpec) error {
	here, there := task, task
	there.Classes++ // as many other classes are refused too: their numbers have another meaning
	shapes := map[string]string{}
	for _, p := range m.Params(here) {
		shapes[p.Name] = fmt.Sprint(p.Shape)
	}
	for _, p := range m.Params(there) {
		if shapes[p.Name] != fmt.Sprint(p.Shape) {
			return fmt.Errorf("the method learns %s %s for %d classes, which cannot be used for other classes", p.Name,
				shapes[p.Name], here.Classes)
		}
	}
	reads := func(t method.ClientSpec) map[string]string {
		out := map[string]string{}
		for _, n := range graph.Inputs(m.Logits(method.NewScope(t, m.Params(t)))) {
			out[n.Name()] = fmt.Sprint(n.Shape())
		}
		return out
	}
	was, is := reads(here), reads(there)
	for _, in := range slices.Sorted(maps.Keys(was)) {
		switch {
		case in == method.MemoryImage || in == method.MemoryLabel:
			return fmt.Errorf("the method classifies with the clients' own examples, which belong to other classes")
		case in != method.LocalClassesInput && !IsImageInput(in) && !strings.HasPrefix(in, method.HostInput+"/") &&
			was[in] != is[in]:
			return fmt.Errorf("the method's class scores read %s %s, which cannot be used for other classes", in,
				was[in])
		}
	}
	return nil
}
