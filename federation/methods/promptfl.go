package methods

import (
	"errors"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// PromptFL averages one text prompt, or with class_specific one for each class; every client is tested with the
// average.
//
// Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts Instead of Models, TMC 2023, algorithm
// 1. Loss and layout are CoOp's (Zhou et al., IJCV 2022, eq. 2-3). No paper averages class-specific prompts: ours are
// class_average all, FedAvg of each, and owners, in which the prompt of class c is the mean over the clients that have
// n_kc > 0 examples of it, weighted by n_kc, and is unchanged where none has. Other clients only push it away from
// their images. For owners clients upload "class/n" [C,1], which is n_kc.
type PromptFL struct {
	method.FedAvg
	ClassContext `config:",squash"`
	ClassAverage string `config:"class_average" help:"clients over which a class's prompt is averaged: all, or owners"`
}

var promptFLDef = Def{Name: "promptfl", Title: "PromptFL", New: newPromptFL,
	Paper:   "Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts, TMC 2023",
	Traffic: promptTraffic}

func newPromptFL() Layer { m := promptFLOf(defaultContext); return &m }

// promptFLOf is PromptFL with one prompt for all classes.
func promptFLOf(c Context) PromptFL {
	return PromptFL{ClassContext: ClassContext{Context: c}, ClassAverage: "all"}
}

func (m *PromptFL) Build(method.Method) (method.Method, error) { return *m, m.Check() }

// Check refuses options that make no sense.
func (m PromptFL) Check() error {
	err := Join(m.ClassContext.Check(), OneOf("class_average", m.ClassAverage, "all", "owners"))
	if m.ClassAverage == "owners" && !m.ClassSpecific {
		err = Join(err, errors.New("option class_average: owners needs class_specific: true"))
	}
	return err
}

func (m PromptFL) Properties() method.Properties {
	if m.ClassAverage == "owners" {
		return method.Properties{Needs: "every client's class counts; set class_average: all"}
	}
	return m.FedAvg.Properties()
}

func (m PromptFL) Params(t method.ClientSpec) []method.Param { return m.Declare(t, method.Shared) }

// classN is a client's number of examples of each class.
const classN = "class/n"

func (m PromptFL) Extras(t method.ClientSpec) []method.Extra {
	if m.ClassAverage != "owners" {
		return nil
	}
	return []method.Extra{{Name: classN, Shape: []int{t.Classes, 1}, Counts: true}}
}

func (m PromptFL) Finish(l *method.Local, up *method.Upload) error {
	if m.ClassAverage == "owners" {
		n := tensor.New(l.Task.Classes, 1)
		for _, y := range l.Data.Labels() {
			n.Data[y]++
		}
		up.Extra[classN] = n
	}
	return nil
}

func (m PromptFL) Merge(g *method.Global, ups []method.Upload) error {
	if m.ClassAverage != "owners" {
		return m.FedAvg.Merge(g, ups)
	}
	rows := func(ctx *tensor.Tensor) *tensor.Tensor { return tensor.Of(ctx.Data, g.Classes, ctx.Len()/g.Classes) }
	prompts := make([]method.Upload, len(ups))
	for i, u := range ups {
		prompts[i] = method.Upload{Client: u.Client, Extra: tensor.Map{"ctx": rows(u.Shared["ctx"]),
			classN: u.Extra[classN]}}
	}
	mean := g.Shared["ctx"].Clone()
	g.Shared = tensor.Map{"ctx": mean}
	return renewMeans(rows(mean), tensor.New(g.Classes, 1), prompts, "ctx", classN, false)
}

// Context are the options of learnable text prompts [tokens,w] as CoOp has them, "ctx" where there is one.
type Context struct {
	Tokens   int     `config:"tokens" help:"prompt tokens"`
	Position string  `config:"position" help:"position of the class name: end, middle or front"`
	Std      float64 `config:"init_std" help:"standard deviation of the initial prompt"`
}

var defaultContext = Context{Tokens: 16, Position: "end", Std: 0.02}

// Check refuses options that make no sense.
func (c Context) Check() error {
	return Join(Within("tokens", c.Tokens, 1, maxTokens), OneOf("position", c.Position, "end", "middle", "front"),
		Within("init_std", c.Std, 0, maxWeight))
}

// Declare gives a prompt as a parameter.
func (c Context) Declare(t method.ClientSpec, name string, o method.Owner) []method.Param {
	return []method.Param{{Name: name, Shape: []int{c.Tokens, t.Width}, Std: c.Std, Owner: o}}
}

// Features gives the class features [C,D] of a prompt.
func (c Context) Features(s *method.Scope, ctx graph.Node) graph.Node {
	return s.TextRead(ctx, method.Reading{Position: c.Position})
}

// Logits compares images with the class features of the prompt "ctx".
func (c Context) Logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Image(), c.Features(s, s.Param("ctx")))
}

// ClassContext is Context with CoOp's class-specific form: "ctx" is [C,tokens,w], one prompt for each class in place of
// one for all (Zhou et al., CoOp, IJCV 2022, section 3.2). A client's loss reaches the prompts of all classes, those
// that it has no examples of as negatives. A class that nobody trained has no prompt, so evaluation sets of other
// classes are refused. Nothing of a text is shared between classes: memory grows with C (1 + tokens + name).
type ClassContext struct {
	Context       `config:",squash"`
	ClassSpecific bool `config:"class_specific" help:"a prompt for each class; evaluation sets need the same classes"`
}

// Declare gives the prompt or the prompts as a parameter.
func (c ClassContext) Declare(t method.ClientSpec, o method.Owner) []method.Param {
	out := c.Context.Declare(t, "ctx", o)
	if c.ClassSpecific {
		out[0].Shape = []int{t.Classes, c.Tokens, t.Width}
	}
	return out
}

// Logits compares images with the class features of "ctx".
func (c ClassContext) Logits(s *method.Scope) graph.Node {
	p := method.Prompt{Ctx: s.Param("ctx"), PerClass: c.ClassSpecific, Reading: method.Reading{Position: c.Position}}
	return s.Cosine(s.Image(), s.TextOf(p))
}
