package method

import (
	"fmt"
	"regexp"
	"strings"

	"promptfed/runtime/graph"
)

// CrossEntropy is the term by which a method fits its labels, and how the names of several begin, as in "cross entropy
// local". Other terms are measured against it.
const CrossEntropy = "cross entropy"

// IsCrossEntropy tells whether a term of that name fits labels.
func IsCrossEntropy(name string) bool {
	return name == CrossEntropy || strings.HasPrefix(name, CrossEntropy+" ")
}

// termName is what terms may be called.
var termName = regexp.MustCompile(`^[a-z0-9][a-z0-9 -]{0,59}$`)

// Term is a named part of a loss.
type Term struct {
	Name string
	Node graph.Node // a scalar, weighted as it enters the loss
}

// Term names a scalar that is added to the loss, with its weight, and returns it. Parts of one name are one term, their
// sum. It adds nothing to the graph.
func (s *Scope) Term(name string, n graph.Node) graph.Node {
	if name = s.named(name); !termName.MatchString(name) {
		return s.g.Fail("a term of the loss is called %q; use lower-case words, at most 60 letters, digits, spaces "+
			"and hyphens", name)
	}
	*s.terms = append(*s.terms, Term{name, n})
	return n
}

// CrossEntropy is the mean cross entropy of class scores [B,C] with the batch's labels, as a term: over a softmax, or
// over a sigmoid for each class behind the backbone's bias, as the task says. What tells it from other cross entropies
// of the loss may be absent.
func (s *Scope) CrossEntropy(logits graph.Node, of ...string) graph.Node {
	name := strings.Join(append([]string{CrossEntropy}, of...), " ")
	if s.fitting != nil {
		s.fitting.used = true
		return s.Term(name, s.fitting.of(logits))
	}
	if s.task.Sigmoid {
		return s.Term(name, graph.SigmoidCrossEntropy(logits.AddScalar(s.task.Bias), s.Label()))
	}
	return s.Term(name, graph.CrossEntropy(logits, s.Label()))
}

type fitting struct {
	of   func(logits graph.Node) graph.Node
	used bool
}

// WithLabelLoss is this scope with another loss in place of cross entropy, under its name: what of gives for class
// scores [B,C], a mean over the batch. LabelLossUsed tells whether anything asked for it.
func (s *Scope) WithLabelLoss(of func(logits graph.Node) graph.Node) *Scope {
	c := *s
	c.fitting = &fitting{of: of}
	return &c
}

// LabelLossUsed tells whether a cross entropy was replaced in a scope of WithLabelLoss.
func (s *Scope) LabelLossUsed() bool { return s.fitting != nil && s.fitting.used }

// Terms gives the terms of a loss that was built in this scope, in the order in which they were named. A loss that is
// not the sum of its terms is an error: a part of it has no name, or a term is not in it.
func (s *Scope) Terms(loss graph.Node) ([]Term, error) {
	left := map[graph.Node]int{}
	for _, t := range *s.terms {
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
	for _, t := range *s.terms {
		if left[t.Node] > 0 {
			return nil, fmt.Errorf("the term %q is named but not added to the loss", t.Name)
		}
		k := 0
		for k < len(out) && out[k].Name != t.Name {
			k++
		}
		if k == len(out) {
			out = append(out, t)
		} else {
			out[k].Node = out[k].Node.Add(t.Node)
		}
	}
	return out, nil
}

// TermNames are the names of the terms of a method's loss, in its order. They depend on no task: the loss is built for
// the smallest sizes that it takes, whatever sizes clients state. There are none where it takes none of those tried.
func TermNames(of Method) []string {
	for _, n := range []int{8, 12, 64, 512, 768} {
		task := ClientSpec{Clients: 3, Classes: 3, Width: n, Dim: n, Patches: 49, Scale: 1, ImageSize: 224,
			VisionWidth: n, VisionLayers: 24, VisionUnits: n, Tokens: 50, TextLayers: 24, TextUnits: n}
		s := NewScope(task, of.Params(task))
		terms, err := s.Terms(of.Loss(s, of.Logits(s)))
		if err != nil || s.Graph().Err() != nil {
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

// Unnamed is this scope whose terms are none of a loss: for parts of one term.
func (s *Scope) Unnamed() *Scope {
	c := *s
	c.terms = &[]Term{}
	return &c
}

// AuxLoss names a scalar that is no part of the loss, whose gradients AdjustGradients is to see: Local.AuxGradients.
func (s *Scope) AuxLoss(name string, n graph.Node) {
	*s.beside = append(*s.beside, graph.Output{Name: s.named(name), Node: n})
}

// AuxLosses are the scalars of AuxLoss.
func (s *Scope) AuxLosses() []graph.Output { return *s.beside }
