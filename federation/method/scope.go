package method

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Scope is what a loss may refer to. Asking for a thing is what makes it an input of the compiled step, and what makes
// it cost. All features are unit rows.
type Scope struct {
	g      *graph.Graph
	task   Task
	params []Param
	at     string // "", "received/" or "before/"
	hosts  *[]HostCall
}

// NewScope starts a graph for one client.
func NewScope(task Task, params []Param) *Scope {
	return &Scope{g: graph.New(), task: task, params: params, hosts: &[]HostCall{}}
}

// Names of graph inputs: a prefix, a slash, and the name of the tensor.
const (
	ParamInput    = "param"    // parameters as they are now
	ReceivedInput = "received" // as the server sent them
	BeforeInput   = "before"   // as this client last left them
	DownInput     = "down"     // extras from the server
	KeptInput     = "kept"     // state this client kept
	ScalarInput   = "scalar"   // numbers set by Begin
	HostInput     = "host"     // values of host functions
)

// Graph is the graph being built.
func (s *Scope) Graph() *graph.Graph { return s.g }

// Task is what the graph is built for.
func (s *Scope) Task() Task { return s.task }

// Hosts lists the host functions asked for so far.
func (s *Scope) Hosts() []HostCall { return *s.hosts }

// Param is a learnable tensor, in Received and Before scopes as a constant.
func (s *Scope) Param(name string) graph.Node {
	i := slices.IndexFunc(s.params, func(p Param) bool { return p.Name == name })
	if i < 0 {
		return s.g.Fail("parameter %q is used but not declared by Params", name)
	}
	prefix := s.at
	if prefix == "" {
		prefix = ParamInput + "/"
	}
	return s.g.Input(prefix+name, graph.Float, graph.Static(s.params[i].Shape...))
}

// SharedNames lists the parameters that the server averages.
func (s *Scope) SharedNames() []string {
	var out []string
	for _, p := range s.params {
		if p.Owner == Shared {
			out = append(out, p.Name)
		}
	}
	return out
}

// Down is an extra tensor that the server sends to everyone; a size of -1 is not known before.
func (s *Scope) Down(name string, shape ...int) graph.Node {
	dims := graph.Static(shape...)
	for i, n := range shape {
		if n < 0 {
			dims[i] = graph.Sym(fmt.Sprintf("%s_%d", name, i))
		}
	}
	return s.g.Input(DownInput+"/"+name, graph.Float, dims)
}

// Kept is a tensor that this client keeps.
func (s *Scope) Kept(name string, shape ...int) graph.Node {
	return s.g.Input(KeptInput+"/"+name, graph.Float, graph.Static(shape...))
}

// Scalar is a number that Begin puts into Local.Scalars, such as the state of a schedule.
func (s *Scope) Scalar(name string) graph.Node {
	return s.g.Input(ScalarInput+"/"+name, graph.Float, graph.Static(1)).Reshape()
}

// Image is the batch of image features [B,D].
func (s *Scope) Image() graph.Node {
	return s.g.Input("image", graph.Float, graph.Shape{graph.Sym("B"), graph.D(s.task.Dim)})
}

// Patches is the batch of patch features [B,M,D].
func (s *Scope) Patches() graph.Node {
	return s.g.Input("patches", graph.Float, graph.Shape{graph.Sym("B"), graph.D(s.task.Patches), graph.D(s.task.Dim)})
}

// Label is the batch of class numbers [B].
func (s *Scope) Label() graph.Node {
	return s.g.Input("label", graph.Int64, graph.Shape{graph.Sym("B")})
}

// Names of the parts that are built once the whole step is known.
const (
	DeferredText = "text" // one prompt through the text tower; attributes "after" and "position"
	DeferredHand = "hand" // features of the hand-written prompts
)

// Reading says how the text around a prompt is laid out and where its feature is read.
type Reading struct {
	Position string // of the class name: "end" (also when empty), "middle" or "front" of the prompt
	After    int    // positions after the end of the text, on padding, as FedPHA's public code reads short prompts
}

// Text gives the class features [C,D] of a prompt ctx [T,w]. All prompts of a step go through the text tower in one
// pass.
func (s *Scope) Text(ctx graph.Node) graph.Node { return s.TextRead(ctx, Reading{}) }

// TextRead is Text with another layout or reading position.
func (s *Scope) TextRead(ctx graph.Node, r Reading) graph.Node {
	if r.Position == "" {
		r.Position = "end"
	}
	return s.g.Defer(DeferredText, graph.Float, []int{s.task.Classes, s.task.Dim},
		graph.Attrs{"after": r.After, "position": r.Position}, ctx).Unit()
}

// HandText gives the class features [C,D] of the hand-written prompt.
func (s *Scope) HandText() graph.Node {
	return s.g.Defer(DeferredHand, graph.Float, []int{s.task.Classes, s.task.Dim}, nil)
}

// Cosine scores features x [B,D] against class features t [C,D]: exp(logit_scale) x tᵀ, [B,C].
func (s *Scope) Cosine(x, t graph.Node) graph.Node { return x.MatMulT(t).Scale(s.task.Scale) }

// Received is this scope with every parameter as the server sent it, a constant.
func (s *Scope) Received() *Scope { return s.frozen(ReceivedInput) }

// Before is this scope with every parameter as this client last left it, a constant.
func (s *Scope) Before() *Scope { return s.frozen(BeforeInput) }

func (s *Scope) frozen(at string) *Scope {
	c := *s
	c.at = at + "/"
	return &c
}

// HostFunc is a function of parameters that is computed on the host, outside the graph.
type HostFunc struct {
	Forward func(in ...*tensor.Tensor) (*tensor.Tensor, error)
	// VJP gives the gradient of <dy, Forward(in)> for each of in; nil makes the result a constant for gradients.
	VJP func(dy *tensor.Tensor, in ...*tensor.Tensor) ([]*tensor.Tensor, error)
	// Every says when it is computed anew.
	Every Moment
	// Trace makes an outside recomputation possible: the value is written to the trace as something drawn.
	Trace bool
}

// Moment is how often a host function is computed.
type Moment string

const (
	EveryStep  Moment = "step"
	EveryEpoch Moment = "epoch"
	EveryRound Moment = "round"
)

// HostCall is one use of a host function: its name, the inputs of the graph that it reads, and its result's input.
type HostCall struct {
	Name string
	Func HostFunc
	Of   []string // names of graph inputs
}

// Host gives f of some parameters as a node of the given shape. The arguments must be parameters of this scope.
func (s *Scope) Host(name string, f HostFunc, shape []int, of ...graph.Node) graph.Node {
	name = s.at + name
	call := HostCall{Name: name, Func: f}
	for _, n := range of {
		if n.Name() == "" || n.Op().Kind != "Input" {
			return s.g.Fail("host function %s: argument %v is no parameter", name, n)
		}
		call.Of = append(call.Of, n.Name())
	}
	if !slices.ContainsFunc(*s.hosts, func(h HostCall) bool { return h.Name == name }) {
		*s.hosts = append(*s.hosts, call)
	}
	return s.g.Input(HostInput+"/"+name, graph.Float, graph.Static(shape...))
}

// Params lists the parameters that the scope was made with.
func (s *Scope) Params() []Param { return s.params }
