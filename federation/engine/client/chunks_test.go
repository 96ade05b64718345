package client_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// countsClasses notes the numbers of classes in passes of the text tower, as negative numbers for passes that begin
// after the loss is known. A class has the same features in each pass; the toy alone numbers the classes of a pass.
type countsClasses struct {
	spec.Backbone
	mu   sync.Mutex
	seen map[int]bool
}

func (c *countsClasses) Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error) {
	n := len(classes)
	first := prompts[0]
	if first.Ctx.OK() && !first.PerImage() && slices.ContainsFunc(graph.Inputs(first.Ctx), func(in graph.Node) bool {
		return !in.Shape()[0].Static() // rows of a batch
	}) {
		n = -n
	}
	c.mu.Lock()
	c.seen[n] = true
	c.mu.Unlock()
	at := slices.Index(methodtest.Classes, classes[0])
	all := slices.Clone(prompts)
	for i, p := range all {
		if p.PerClass { // other classes have any prompts
			others := func(n int) graph.Node { return g.Const(tensor.New(n, p.Ctx.Dim(1), p.Ctx.Dim(2))) }
			all[i].Ctx = graph.Concat(0, others(at), p.Ctx, others(len(methodtest.Classes)-at-len(classes)))
		}
	}
	out, err := c.Backbone.Text(g, methodtest.Classes, all)
	if err == nil && len(classes) < len(methodtest.Classes) {
		for i := range out {
			out[i] = out[i].Slice(out[i].Rank()-2, at, at+len(classes))
		}
	}
	return out, err
}

// chained is a method whose second prompt depends on the features of the first.
type chained struct{ method.Base }

func (chained) Params(t method.ClientSpec) []method.Param {
	shape := []int{2, t.Width}
	return []method.Param{{Name: "a", Shape: shape, Std: 0.3}, {Name: "b", Shape: shape, Std: 0.3}}
}

func (chained) Logits(s *method.Scope) graph.Node {
	first := s.TextFeatures(method.Prompt{Ctx: s.Param("a")})
	by := first.Mean(0, 1).AddScalar(1)
	return s.Cosine(s.Image(), s.TextFeatures(method.Prompt{Ctx: s.Param("b").Mul(by)}).Add(first))
}

// Steps on one or on two of four classes at a time have the prompts, losses, terms and accuracies of steps on all
// classes, up to rounding; also several clients in one run, and the first step, which clients share. The toy takes four
// bytes for each of C·T·6 numbers: 192 for all classes and a prompt of two tokens.
func TestClassesInChunksAreTheWhole(t *testing.T) {
	own := buildMethod(t, "promptfl", nil, map[string]any{"class_specific": true, "tokens": 2})
	all := map[string]method.Method{"chained": chained{}, "prompts for each class": own}
	for name, options := range map[string]map[string]any{
		"promptfl": {"tokens": 2}, "fedotp": {"tokens": 2}, "fedpha": {"global_tokens": 2, "local_tokens": []int{2}},
		"kgcoop": {"tokens": 2}, "fedtpg": {"heads": 2}, "sdfed": {}, "pfedmoap": {},
		"cocoop": {"reduce": 2, "init_std": 0.4}, "trip": {"tokens": 4, "iters": 20},
	} {
		all[name] = buildMethod(t, name, []string{"fedprox"}, options)
	}
	for name, m := range all {
		run := func(memory, clients int) (*engine.Result, map[int]bool) {
			e := withMethod(m)
			e.Clients, e.Training.Memory, e.BatchClients = methodtest.ClientsOfOneBackbone(9, 5, 6), memory, clients
			b := &countsClasses{Backbone: e.Clients[0].Backbone, seen: map[int]bool{}}
			for _, c := range e.Clients {
				c.Backbone = b
			}
			return mustRun(t, e, engine.Settings{Client: client.Settings{Terms: true}}), b.seen
		}
		perImage := name == "cocoop" || name == "trip"
		whole, seen := run(0, 1)
		if len(seen) != 1 || !seen[4] {
			t.Errorf("%s: passes of %v classes where memory suffices", name, seen)
		}
		for _, c := range []struct{ memory, clients, size int }{{1, 1, 1}, {150, 1, 2}, {150, 3, 1}} {
			got, seen := run(c.memory, c.clients)
			label := fmt.Sprint(name, c)
			if name == "promptfl" && !(seen[c.size] && seen[-c.size]) ||
				!(seen[-1] || seen[-2] || perImage && (seen[1] || seen[2])) || seen[4] {
				t.Errorf("%s: passes of %v classes", label, seen)
			}
			for name, want := range whole.Prompts {
				if d := got.Prompts[name].Clone(); !d.IsInt() {
					if d.Axpy(-1, want); !(d.MaxAbs() <= 2e-6*max(1, want.MaxAbs())) {
						t.Errorf("%s: %s differs by %g", label, name, d.MaxAbs())
					}
				}
			}
			for i, r := range got.Records {
				if want := whole.Records[i]; !(math.Abs(*r.Loss-*want.Loss) <= 1e-5) ||
					r.Evaluation.Accuracy() != want.Evaluation.Accuracy() {
					t.Errorf("%s: round %d has loss %g and accuracy %g, want %g and %g", label, i, *r.Loss,
						r.Evaluation.Accuracy(), *want.Loss, want.Evaluation.Accuracy())
				}
			}
		}
	}
}
