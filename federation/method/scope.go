package method

import (
	"slices"
	"strings"

	"promptfed/runtime/graph"
	_ "promptfed/runtime/ops" // defines the operators
	"promptfed/runtime/tensor"
)

// Scope has the inputs of a loss. A node becomes an input of the compiled step, and costs time, when a method asks for
// it. All features are unit rows. An input that only one method reads is declared by that method with Input.
type Scope struct {
	graph    *graph.Graph
	task     ClientSpec
	params   []Param
	at       InputKind // of parameters: ParamInput, ReceivedInput or BeforeInput
	override *override // nil for none
	built    *Built    // of this scope and its copies
}

// NewScope starts a graph for one client.
func NewScope(task ClientSpec, params []Param) *Scope {
	return &Scope{graph: graph.New(), task: task, params: params, at: ParamInput,
		built: &Built{Constants: tensor.Map{}}}
}

// Built is what methods asked for, beside nodes, while they built a graph. The engine reads it; it is complete once the
// loss is built.
type Built struct {
	Hosts     []HostCall // of Scope.Host
	AuxLosses []Term     // of Scope.AuxLoss
	Constants tensor.Map // of Scope.Note
	terms     []Term     // of Scope.Term
}

// Built returns what was asked for so far in this scope and in its copies.
func (s *Scope) Built() Built { return *s.built }

// Graph returns the graph that is built.
func (s *Scope) Graph() *graph.Graph { return s.graph }

// Task returns the client that the graph is built for.
func (s *Scope) Task() ClientSpec { return s.task }

// Param returns the node of a learnable tensor, in Received and LastTrained scopes as a constant. It refuses an offset
// from words (Param.Words), which is no prompt by itself.
func (s *Scope) Param(name string) graph.Node {
	if i := s.index(name); i >= 0 && s.params[i].Words != "" {
		return s.graph.Fail("parameter %q is an offset from the words %q; add these with prompts.OffsetContext, or "+
			"read the offset itself with Scope.TrainedValue", name, s.params[i].Words)
	}
	return s.TrainedValue(name)
}

// TrainedValue is Param for code that treats all parameters alike: it returns the values that are trained, averaged and
// sent, also those of an offset from words.
func (s *Scope) TrainedValue(name string) graph.Node {
	if o, outer := s.replaced(func(o *override) bool { return o.TrainedValue != nil }); o != nil {
		return o.TrainedValue(outer, name)
	}

	i := s.index(name)
	if i < 0 {
		return s.graph.Fail("parameter %q is used but not declared by Params", name)
	}

	return s.Input(Input{s.at, name}, graph.Float, graph.Static(s.params[i].Shape...))
}

func (s *Scope) index(name string) int {
	return slices.IndexFunc(s.params, func(p Param) bool { return p.Name == name })
}

// Note records a constant of the graph in the trace, which no option determines.
func (s *Scope) Note(name string, t *tensor.Tensor) { s.built.Constants[name] = t }

// Broadcast is an extra tensor that the server sends to everyone.
func (s *Scope) Broadcast(name string, shape ...int) graph.Node {
	return s.Input(Input{BroadcastInput, name}, graph.Float, graph.Static(shape...))
}

// State is a tensor of the state that this client keeps from round to round.
func (s *Scope) State(name string, shape ...int) graph.Node {
	return s.Input(Input{StateInput, name}, graph.Float, graph.Static(shape...))
}

// Scalar is a number that Begin puts into Local.Scalars, such as the state of a schedule.
func (s *Scope) Scalar(name string) graph.Node {
	return s.Input(Input{ScalarInput, name}, graph.Float, graph.Static(1)).Reshape()
}

// rows declares rows [B,...] of a batch.
func (s *Scope) rows(name string, dtype graph.DType, sizes ...int) graph.Node {
	return s.Input(Input{RowInput, name}, dtype, graph.Rows("B", sizes...))
}

// Image is the batch of image features [B,D].
func (s *Scope) Image() graph.Node {
	return s.rows(ImageInput, graph.Float, s.task.Dim)
}

// Patches is the batch of patch features [B,M,D].
func (s *Scope) Patches() graph.Node {
	return s.rows(PatchesInput, graph.Float, s.task.Patches, s.task.Dim)
}

// Pixels is the batch of normalised pixels [B,3,S,S].
func (s *Scope) Pixels() graph.Node {
	return s.rows(PixelsInput, graph.Float, 3, s.task.ImageSize, s.task.ImageSize)
}

// Label is the batch of class numbers [B].
func (s *Scope) Label() graph.Node {
	return s.rows(LabelInput, graph.Int64)
}

// Values of placeholders beside Prompt: the parts of a graph that are built once the whole step is known.
type (
	// Words are the embeddings of the words of a text.
	Words struct{ Text string }
	// HandTexts are class features of hand-written templates, in which {} stands for the class: the mean of the unit
	// features of all templates, made unit again.
	HandTexts struct {
		Templates []string          // none are the template of the experiment
		Of        map[string]string // the text that stands for {of} in a template, by class; nil for none
		Raw       bool              // the features are those that the text tower returns, not made unit before the mean
	}
	// PromptedImages are images that go through the image tower with prompts.
	PromptedImages struct {
		Pixels  graph.Node
		Prompts VisionPrompts
	}
	// PerExample is X [B,...], whose entry i depends on image i alone, which a loop hides. A batch may then be computed
	// in parts.
	PerExample struct{ X graph.Node }
)

// Tokens returns how many tokens the words must have.
func (w Words) Tokens() int { return len(strings.Fields(w.Text)) }

// Text returns the class features [C,D] of a prompt ctx [T,w]. All prompts of a step go through the text tower in one
// pass.
func (s *Scope) Text(ctx graph.Node) graph.Node { return s.TextFeatures(Prompt{Ctx: ctx}) }

// HandText returns the class features [C,D] of the experiment's hand-written prompt, or of some templates.
func (s *Scope) HandText(templates ...string) graph.Node {
	return s.HandTextFeatures(HandTexts{Templates: templates})
}

// HandTextFeatures returns the class features [C,D] of hand-written texts.
func (s *Scope) HandTextFeatures(texts HandTexts) graph.Node {
	return s.graph.Placeholder(texts, graph.Float, []int{s.task.Classes, s.task.Dim})
}

// Vision returns the image features [B,D] of the batch with prompts, or the embeddings [B,M,v] of its patches: the
// image tower runs in every step.
func (s *Scope) Vision(prompts VisionPrompts) graph.Node {
	if o, outer := s.replaced(func(o *override) bool { return o.Vision != nil && !prompts.Embeddings }); o != nil {
		return o.Vision(outer, prompts)
	}

	if !prompts.Changes.None() && s.task.VisionLayers == 0 {
		return s.graph.Fail("the image tower of backbone %s, a ResNet or an exported model, does not support low-rank "+
			"changes or adapters", s.task.Backbone)
	}

	prompts.Deep = withoutAbsentTail(prompts.Deep)
	images := PromptedImages{s.Pixels(), prompts}
	if prompts.Embeddings {
		return s.graph.Placeholder(images, graph.Float, []int{-1, s.task.Patches, s.task.VisionWidth})
	}

	return s.graph.Placeholder(images, graph.Float, []int{-1, s.task.Dim}).L2Normalize()
}

// Cosine scores features x [B,D] against class features t [C,D]: exp(logit_scale) x tᵀ, [B,C].
func (s *Scope) Cosine(x, t graph.Node) graph.Node {
	if o, outer := s.replaced(func(o *override) bool { return o.Cosine != nil }); o != nil {
		return o.Cosine(outer, x, t)
	}
	return x.MatMulT(t).MulScalar(s.task.Scale)
}

// Received returns a copy of this scope in which every parameter has the value that the server sent, a constant.
func (s *Scope) Received() *Scope { return s.frozen(ReceivedInput) }

// LastTrained returns a copy of this scope in which every parameter has the value after this client's last training, a
// constant.
func (s *Scope) LastTrained() *Scope { return s.frozen(BeforeInput) }

func (s *Scope) frozen(at InputKind) *Scope {
	c := *s
	c.at = at
	return &c
}

// HostFunc is a function of parameters that is computed on the host, outside the graph.
type HostFunc struct {
	// Forward returns the value, and its pullback where the function is differentiable.
	Forward func(in ...*tensor.Tensor) (*tensor.Tensor, Pullback, error)
	// Differentiable is false where the result is a constant for gradients.
	Differentiable bool
	// Every is how often it is computed.
	Every Frequency
	// Trace returns the form of the value that is written to the trace, so that others can recompute the step; nil
	// writes nothing.
	Trace func(*tensor.Tensor) *tensor.Tensor
}

// Pullback returns the gradient of <dy, value> for each argument that a host function computed its value from.
type Pullback func(dy *tensor.Tensor) ([]*tensor.Tensor, error)

// Frequency is the frequency at which a host function is computed.
type Frequency string

const (
	EveryStep  Frequency = "step"  // at the parameters of each step
	EveryEpoch Frequency = "epoch" // at the start of each pass over the data
	EveryRound Frequency = "round" // at the start of a client's turn
)

// HostCall is one use of a host function.
type HostCall struct {
	Name string
	Func HostFunc
	Args []Input // of the graph
}

// Input returns the input of the graph that has the value.
func (c HostCall) Input() Input { return Input{HostInput, c.Name} }

// Host returns f of some parameters as a node of the given shape. The arguments must be parameters of this scope.
func (s *Scope) Host(name string, f HostFunc, shape []int, args ...graph.Node) graph.Node {
	call := HostCall{Name: name, Func: f}
	if s.at != ParamInput {
		call.Name = Input{s.at, name}.String()
	}

	if inside := s.named(call.Name); inside != call.Name {
		call.Name = "with/" + inside
	}

	if call.Name != name {
		call.Func.Trace = nil // a trace has no place for a second value
	}

	for _, n := range args {
		if n.Source() == nil {
			return s.graph.Fail("host function %s: argument %v is not a parameter", call.Name, n)
		}
		call.Args = append(call.Args, InputOf(n))
	}

	if !slices.ContainsFunc(s.built.Hosts, func(h HostCall) bool { return h.Name == call.Name }) {
		s.built.Hosts = append(s.built.Hosts, call)
	}

	return s.Input(call.Input(), graph.Float, graph.Static(shape...))
}

// Params lists the parameters that the scope was made with.
func (s *Scope) Params() []Param { return s.params }
