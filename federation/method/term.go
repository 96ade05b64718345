package method

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"promptfed/runtime/graph"
)

// CrossEntropy is the name of the term that fits labels, and the beginning of the names of several, as in "cross
// entropy local". Other terms are measured against it.
const CrossEntropy = "cross entropy"

// IsCrossEntropy reports whether a term is a cross entropy, by its name.
func IsCrossEntropy(name string) bool {
	return name == CrossEntropy || strings.HasPrefix(name, CrossEntropy+" ")
}

// termName matches valid names of terms.
var termName = regexp.MustCompile(`^[a-z0-9][a-z0-9 -]{0,59}$`)

// Term is a named part of a loss.
type Term struct {
	Name string
	Node graph.Node // a scalar, weighted as it enters the loss
}

// Term names a scalar that is added to the loss, with its weight, and returns it. Scalars of the same name are one
// term, their sum. It adds nothing to the graph.
func (s *Scope) Term(name string, n graph.Node) graph.Node {
	if name = s.named(name); !termName.MatchString(name) {
		return s.graph.Fail("a term of the loss is called %q; use lower-case words, at most 60 letters, digits, "+
			"spaces and hyphens", name)
	}
	s.built.terms = append(s.built.terms, Term{name, n})
	return n
}

// CrossEntropy returns LabelLoss as a term; words name it among several.
func (s *Scope) CrossEntropy(logits graph.Node, words ...string) graph.Node {
	return s.Term(strings.Join(append([]string{CrossEntropy}, words...), " "), s.LabelLoss(logits))
}

// LabelLoss returns the mean cross entropy of class scores [B,C] with the batch's labels, for a part of a term: over a
// softmax, or, for a task with Sigmoid, over a sigmoid for each class after the backbone's bias.
func (s *Scope) LabelLoss(logits graph.Node) graph.Node {
	if o, outer := s.replaced(func(o *override) bool { return o.LabelLoss != nil }); o != nil {
		return o.LabelLoss(outer, logits)
	}
	if s.task.Sigmoid {
		return graph.SigmoidCrossEntropy(logits.AddScalar(s.task.Bias), s.Label())
	}
	return graph.CrossEntropy(logits, s.Label())
}

// Terms returns the terms of a loss that was built, in the order in which they were named. A part of the loss without a
// name is an error, and so is a term that is not in the loss.
func (b Built) Terms(loss graph.Node) ([]Term, error) {
	left := map[graph.Node]int{}
	for _, t := range b.terms {
		left[t.Node]++
	}

	var unnamed []string
	var walk func(n graph.Node)
	walk = func(n graph.Node) {
		if left[n] > 0 {
			left[n]--
			return
		}
		if op := n.Op(); op != nil && op.Kind == "Add" && op.Domain == graph.Standard {
			walk(op.In[0])
			walk(op.In[1])
			return
		}
		unnamed = append(unnamed, fmt.Sprint(n))
	}

	walk(loss)
	if unnamed != nil {
		return nil, fmt.Errorf("parts of the loss have no name: %s; name each with Scope.Term", strings.Join(unnamed,
			", "))
	}

	var out []Term
	for _, t := range b.terms {
		if left[t.Node] > 0 {
			return nil, fmt.Errorf("the term %q is named but not added to the loss", t.Name)
		}
		if k := slices.IndexFunc(out, func(o Term) bool { return o.Name == t.Name }); k >= 0 {
			out[k].Node = out[k].Node.Add(t.Node)
		} else {
			out = append(out, t)
		}
	}

	return out, nil
}

// TermNames returns the names of the terms of a method's loss, in their order. They depend on no client: the loss is
// built for the smallest of some sizes that it accepts. It returns none where the loss accepts none of these sizes.
func TermNames(m Method) []string {
	for _, n := range []int{8, 12, 64, 512, 768} {
		task := ClientSpec{Clients: 3, Classes: 3, Width: n, Dim: n, Patches: 49, Scale: 1, ImageSize: 224,
			VisionWidth: n, VisionLayers: 24, VisionUnits: n, Tokens: 50, TextLayers: 24, TextUnits: n}
		scope, _, loss := LossOf(m, task)
		terms, err := scope.Built().Terms(loss)
		if err != nil || scope.Graph().Err() != nil {
			continue
		}
		var out []string
		for _, t := range terms {
			out = append(out, t.Name)
		}
		return out
	}

	return nil
}

// AuxLoss names a scalar that is no part of the loss. AdjustGradients finds its gradients in Local.AuxGradients.
func (s *Scope) AuxLoss(name string, n graph.Node) {
	s.built.AuxLosses = append(s.built.AuxLosses, Term{s.named(name), n})
}
