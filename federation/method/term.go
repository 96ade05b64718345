package method

import (
	"fmt"
	"regexp"
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
		return s.g.Fail("a term of the loss is called %q; use lower-case words, at most 60 letters, digits, spaces "+
			"and hyphens", name)
	}
	*s.terms = append(*s.terms, Term{name, n})
	return n
}

// CrossEntropy returns the mean cross entropy of class scores [B,C] with the batch's labels, as a term: over a softmax,
// or, for a task with Sigmoid, over a sigmoid for each class after the backbone's bias. words name it among several.
func (s *Scope) CrossEntropy(logits graph.Node, words ...string) graph.Node {
	name := strings.Join(append([]string{CrossEntropy}, words...), " ")
	if s.fitting != nil {
		s.fitting.used = true
		return s.Term(name, s.fitting.loss(logits))
	}
	if s.task.Sigmoid {
		return s.Term(name, graph.SigmoidCrossEntropy(logits.AddScalar(s.task.Bias), s.Label()))
	}
	return s.Term(name, graph.CrossEntropy(logits, s.Label()))
}

type fitting struct {
	loss func(logits graph.Node) graph.Node
	used bool
}

// WithLabelLoss returns a copy of this scope in which CrossEntropy returns another loss under the same name: loss
// returns its mean over the batch for class scores [B,C].
func (s *Scope) WithLabelLoss(loss func(logits graph.Node) graph.Node) *Scope {
	c := *s
	c.fitting = &fitting{loss: loss}
	return &c
}

// LabelLossUsed reports whether a cross entropy was replaced in a scope of WithLabelLoss.
func (s *Scope) LabelLossUsed() bool { return s.fitting != nil && s.fitting.used }

// Terms returns the terms of a loss that was built in this scope, in the order in which they were named. A part of the
// loss without a name is an error, and so is a term that is not in the loss.
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

// TermNames returns the names of the terms of a method's loss, in their order. They depend on no client: the loss is
// built for the smallest of some sizes that it accepts. It returns none where the loss accepts none of these sizes.
func TermNames(m Method) []string {
	for _, n := range []int{8, 12, 64, 512, 768} {
		task := ClientSpec{Clients: 3, Classes: 3, Width: n, Dim: n, Patches: 49, Scale: 1, ImageSize: 224,
			VisionWidth: n, VisionLayers: 24, VisionUnits: n, Tokens: 50, TextLayers: 24, TextUnits: n}
		s := NewScope(task, m.Params(task))
		terms, err := s.Terms(m.Loss(s, m.Logits(s)))
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

// WithoutTerms returns a copy of this scope whose terms do not count, for parts of one term.
func (s *Scope) WithoutTerms() *Scope {
	c := *s
	c.terms = &[]Term{}
	return &c
}

// AuxLoss names a scalar that is no part of the loss. AdjustGradients finds its gradients in Local.AuxGradients.
func (s *Scope) AuxLoss(name string, n graph.Node) {
	*s.beside = append(*s.beside, Term{s.named(name), n})
}

// AuxLosses returns the scalars of AuxLoss.
func (s *Scope) AuxLosses() []Term { return *s.beside }
