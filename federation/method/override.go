package method

import "promptfed/runtime/graph"

// Override is what a wrapper puts in place of methods of Scope, for the methods inside it. Each function takes the
// place of the method of its name and has the same result; nil leaves that method as it is. outer is the scope around
// the override: its method returns the value that is replaced.
type Override struct {
	// Name follows the names of terms, auxiliary losses and host functions. It is needed where the methods inside are
	// computed a second time, with other parameters.
	Name         string
	TrainedValue func(outer *Scope, name string) graph.Node
	Vision       func(outer *Scope, p VisionPrompts) graph.Node // of features [B,D], not of embeddings of patches
	Cosine       func(outer *Scope, x, t graph.Node) graph.Node
	LabelLoss    func(outer *Scope, logits graph.Node) graph.Node
}

// override is an Override of a scope and of its copies.
type override struct {
	Override
	around *override // nil for none
	used   bool
}

// With returns a copy of this scope with an override. Where several replace one method, the last one counts.
func (s *Scope) With(o Override) *Scope {
	c := *s
	c.override = &override{Override: o, around: s.override}
	return &c
}

// Used reports whether a function of the last override of With was called, in this scope or in a copy. A wrapper
// refuses a method that does not use its override, or leaves it out.
func (s *Scope) Used() bool { return s.override != nil && s.override.used }

// replaced returns the last override that has a function, which counts as used, and the scope around it; nil for none.
func (s *Scope) replaced(has func(*override) bool) (*override, *Scope) {
	for o := s.override; o != nil; o = o.around {
		if has(o) {
			o.used = true
			outer := *s
			outer.override = o.around
			return o, &outer
		}
	}

	return nil, nil
}

// named returns a name followed by the names of the overrides.
func (s *Scope) named(name string) string {
	for o := s.override; o != nil; o = o.around {
		if o.Name != "" {
			name += " " + o.Name
		}
	}
	return name
}
