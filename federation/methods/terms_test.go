package methods_test

import (
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
)

// termsOf builds the loss of a method on a toy client and returns the names of its terms.
func termsOf(m method.Method) ([]string, error) {
	task := methodtest.ClientsOfOneBackbone(4)[0].Backbone.Task()
	task.Clients, task.Classes = 2, len(methodtest.Classes)
	s, _, loss := method.LossOf(m, task)
	if err := s.Graph().Err(); err != nil {
		return nil, err
	}
	terms, err := s.Built().Terms(loss)
	var names []string
	for _, t := range terms {
		names = append(names, t.Name)
	}
	return names, err
}

// namedTerms lists the terms that papers name, of each row of the table at its default options. Wrappers' terms are
// over PromptFL, after cross entropy.
var namedTerms = map[string]string{
	"fedapt": "cross entropy, domain", "fedmvp": "cross entropy, consistency",
	"fedappr": "cross entropy, adversarial, proximity", "appr": "cross entropy, adversarial, proximity",
	"fedclip": "cross entropy of images, cross entropy of texts", "fedhpl": "cross entropy, distillation",
	"fedpha": "cross entropy local, cross entropy global, pull, push", "sdfed": "cross entropy local, cross entropy " +
		"global, pull, push",
	"fedmgp":  "cross entropy, likeness of texts, likeness of images",
	"fedlora": "cross entropy of images, cross entropy of texts", "kgcoop": "cross entropy, knowledge",
	"proda":     "cross entropy, likeness of prompts",
	"promptsrc": "cross entropy, text features, image features, class probabilities",
	"trip":      "cross entropy, distillation",
	"fedpgp":    "cross entropy, contrastive", "uopp": "cross entropy mixture, cross entropy general, cross entropy " +
		"expert",
	"apfl":   "cross entropy, cross entropy personal",
	"ditto":  "cross entropy, cross entropy personal, proximal personal",
	"fedamp": "cross entropy, attentive proximal",
	"feddyn": "cross entropy, dynamic linear, dynamic quadratic", "fedntd": "cross entropy, not-true distillation",
	"fedproto": "cross entropy, prototype distance", "fedprox": "cross entropy, proximal",
	"moon": "cross entropy, model-contrastive",
}

// Every loss is the sum of its named terms: for each row of the table, every case of the suite and every compatible
// pair of layers.
func TestLossesAreSumsOfTerms(t *testing.T) {
	for _, e := range methods.Table() {
		name, with := e.Name, []string(nil)
		if e.Wrapper() {
			name, with = "promptfl", []string{e.Name}
		}
		m := methodtest.Build(t, name, with, fitting[name])
		want, ok := namedTerms[e.Name]
		if !ok {
			want = method.CrossEntropy
		}
		if got, err := termsOf(m); err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%s has the terms %q, %v; want %s", e.Name, got, err, want)
		}
	}
	for _, c := range cases {
		m := methodtest.Build(t, c.Name, c.With, c.Options)
		if names, err := termsOf(m); err != nil {
			t.Errorf("%s: %v", c.Label(), err)
		} else if !method.IsCrossEntropy(names[0]) {
			t.Errorf("%s has no cross entropy first: %q", c.Label(), names)
		}
	}
	tried := 0
	for _, a := range methods.Table() {
		for _, b := range methods.Table() {
			if a.Wrapper() || !b.Wrapper() {
				continue
			}
			m, err := methods.Build(a.Name, []string{b.Name, "fedprox"}, fitting[a.Name])
			if err != nil {
				continue // a stack that makes no sense; stacks_test.go has the reasons
			}
			tried++
			if _, err := termsOf(m); err != nil {
				t.Errorf("%s+%s+fedprox: %v", a.Name, b.Name, err)
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d stacks could be built", tried)
	}
}

// parts is a loss whose parts are added, scaled or left out, with and without names.
type parts struct {
	method.Base
	loss func(s *method.Scope, ce, more graph.Node) graph.Node
}

func (parts) Params(method.ClientSpec) []method.Param {
	return []method.Param{{Name: "ctx", Shape: []int{2, 6}, Std: 1}}
}

func (parts) Logits(s *method.Scope) graph.Node { return s.Cosine(s.Image(), s.Text(s.Param("ctx"))) }

func (m parts) Loss(s *method.Scope, logits graph.Node) graph.Node {
	return m.loss(s, s.CrossEntropy(logits), s.Param("ctx").Square().Sum())
}

func TestWhatIsNoSumOfTerms(t *testing.T) {
	for what, c := range map[string]struct {
		loss func(s *method.Scope, ce, more graph.Node) graph.Node
		want string // names, or part of the error
	}{
		"named": {func(s *method.Scope, ce, n graph.Node) graph.Node { return s.Term("norm", n).Add(ce) },
			"cross entropy, norm"},
		"two parts": {func(s *method.Scope, ce, n graph.Node) graph.Node {
			return s.Term("n", n).Add(ce).Add(s.Term("n", n.Neg()))
		}, "cross entropy, n"},
		"unnamed": {func(s *method.Scope, ce, n graph.Node) graph.Node { return ce.Add(n) }, "have no name"},
		"scaled": {func(s *method.Scope, ce, n graph.Node) graph.Node { return ce.Add(s.Term("n", n)).MulScalar(2) },
			"have no name"},
		"detached": {func(s *method.Scope, ce, n graph.Node) graph.Node { return ce.Add(s.Term("n", n).Detach()) },
			"have no name"},
		"left out": {func(s *method.Scope, ce, n graph.Node) graph.Node { s.Term("n", n); return ce },
			`"n" is named but not added`},
		"twice": {func(s *method.Scope, ce, n graph.Node) graph.Node { return ce.Add(ce) }, "have no name"},
		"no name": {func(s *method.Scope, ce, n graph.Node) graph.Node { return ce.Add(s.Term("", n)) },
			`is called ""`},
		"slash": {func(s *method.Scope, ce, n graph.Node) graph.Node { return ce.Add(s.Term("a/b", n)) },
			`is called "a/b"`},
	} {
		names, err := termsOf(parts{loss: c.loss})
		got := strings.Join(names, ", ")
		if err != nil {
			got = err.Error()
		}
		if (err == nil) != slices.Contains([]string{"named", "two parts"}, what) || !strings.Contains(got, c.want) ||
			strings.Contains(got, "\n") {
			t.Errorf("%s: %s; want %s", what, got, c.want)
		}
	}
}
