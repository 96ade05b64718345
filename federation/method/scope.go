package method

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/graph"
	_ "promptfed/runtime/ops" // defines the operators
	"promptfed/runtime/tensor"
)

// Scope has the inputs of a loss. A node becomes an input of the compiled step, and costs time, when a method asks for
// it. All features are unit rows.
type Scope struct {
	g      *graph.Graph
	task   ClientSpec
	params []Param
	at     InputKind // of parameters: ParamInput, ReceivedInput or BeforeInput
	hosts  *[]HostCall
	terms  *[]Term
	beside *[]Term
	pair   *[2]graph.Node // what Cosine compared first
	spread *spread        // nil for none
	with   *with          // nil for none

	fitting *fitting // nil for cross entropy

	constants tensor.Map
}

// NewScope starts a graph for one client.
func NewScope(task ClientSpec, params []Param) *Scope {
	return &Scope{g: graph.New(), task: task, params: params, at: ParamInput, hosts: &[]HostCall{}, terms: &[]Term{},
		beside: &[]Term{}, pair: &[2]graph.Node{}, constants: tensor.Map{}}
}

// Graph returns the graph that is built.
func (s *Scope) Graph() *graph.Graph { return s.g }

// Task returns the client that the graph is built for.
func (s *Scope) Task() ClientSpec { return s.task }

// Hosts lists the host functions asked for so far.
func (s *Scope) Hosts() []HostCall { return *s.hosts }

// Param returns the node of a learnable tensor, in Received and LastTrained scopes as a constant. It refuses an offset
// from words (Param.Words), which is no prompt by itself.
func (s *Scope) Param(name string) graph.Node {
	if i := s.index(name); i >= 0 && s.params[i].Words != "" {
		return s.g.Fail("parameter %q is an offset from the words %q; add these with prompts.OffsetContext, or read "+
			"the offset itself with Scope.TrainedValue", name, s.params[i].Words)
	}
	return s.TrainedValue(name)
}

// TrainedValue is Param for code that treats all parameters alike: it returns the values that are trained, averaged and
// sent, also those of an offset from words.
func (s *Scope) TrainedValue(name string) graph.Node {
	if s.with != nil {
		outer := *s
		outer.with = s.with.outer
		if n := s.with.of(&outer, name); n.OK() {
			return n
		}
		return outer.TrainedValue(name)
	}
	i := s.index(name)
	if i < 0 {
		return s.g.Fail("parameter %q is used but not declared by Params", name)
	}
	return s.Input(Input{s.at, name}, graph.Float, graph.Static(s.params[i].Shape...))
}

func (s *Scope) index(name string) int {
	return slices.IndexFunc(s.params, func(p Param) bool { return p.Name == name })
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

// Note records a constant of the graph in the trace, which no option determines.
func (s *Scope) Note(name string, t *tensor.Tensor) { s.constants[name] = t }

// Constants returns the constants of Note.
func (s *Scope) Constants() tensor.Map { return s.constants }

// Broadcast is an extra tensor that the server sends to everyone; a size of -1 is not known before.
func (s *Scope) Broadcast(name string, shape ...int) graph.Node {
	return s.Input(Input{BroadcastInput, name}, graph.Float, open(name, shape))
}

// open is a shape whose sizes of -1 are not known before.
func open(name string, shape []int) graph.Shape {
	dims := graph.Static(shape...)
	for i, n := range shape {
		if n < 0 {
			dims[i] = graph.Sym(fmt.Sprintf("%s_%d", name, i))
		}
	}
	return dims
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
	return s.Input(Input{RowInput, name}, dtype, append(graph.Shape{graph.Sym("B")}, graph.Static(sizes...)...))
}

// Image is the batch of image features [B,D].
func (s *Scope) Image() graph.Node {
	return s.rows(ImageInput, graph.Float, s.task.Dim)
}

// Patches is the batch of patch features [B,M,D].
func (s *Scope) Patches() graph.Node {
	return s.rows(PatchesInput, graph.Float, s.task.Patches, s.task.Dim)
}

// Tokens is the batch of tokens [B,N,v] behind the image tower's last block, the class token first: before the last
// layer norm and the projection, and no unit rows.
func (s *Scope) Tokens() graph.Node {
	if s.task.Tokens == 0 {
		return s.g.Fail("the method needs the tokens of the image tower's last block, which backbone %s, a ResNet or "+
			"an exported model, does not provide", s.task.Backbone)
	}
	return s.rows(TokensInput, graph.Float, s.task.Tokens, s.task.VisionWidth)
}

// Pixels is the batch of normalised pixels [B,3,S,S].
func (s *Scope) Pixels() graph.Node {
	return s.rows(PixelsInput, graph.Float, 3, s.task.ImageSize, s.task.ImageSize)
}

// Label is the batch of class numbers [B].
func (s *Scope) Label() graph.Node {
	return s.rows(LabelInput, graph.Int64)
}

// LocalClasses returns [C]: 1 for classes of which this client has training examples, 0 for others.
func (s *Scope) LocalClasses() graph.Node {
	return s.Input(LocalClassesInput, graph.Float, graph.Static(s.task.Classes))
}

// Memory returns all training examples of this client, before any method wraps its data: image features [N,D] and class
// numbers [N]. Tests can read them, too.
func (s *Scope) Memory() (image, label graph.Node) {
	n := graph.Sym("N")
	return s.Input(MemoryImage, graph.Float, graph.Shape{n, graph.StaticDim(s.task.Dim)}),
		s.Input(MemoryLabel, graph.Int64, graph.Shape{n})
}

// Values of placeholders beside Prompt: the parts of a graph that are built once the whole step is known.
type (
	// Words are the embeddings of the words of a text.
	Words struct{ Text string }
	// HandTexts are features of hand-written templates; none are that of the experiment. Of is the table of
	// Scope.TextsOf, nil for none. Raw is that of Scope.RawTexts.
	HandTexts struct {
		Templates []string
		Of        map[string]string
		Raw       bool
	}
	// PromptedImages are images that go through the image tower with prompts.
	PromptedImages struct {
		Pixels  graph.Node
		Prompts VisionPrompts
	}
	// PerExample is a node of Scope.PerExample.
	PerExample struct{ X graph.Node }
)

// Tokens returns how many tokens the words must have.
func (w Words) Tokens() int { return len(strings.Fields(w.Text)) }

// PromptLayout is the layout of the text around a prompt, and the position at which its feature is read.
type PromptLayout struct {
	Position   string // of the class name: "end" (also when empty), "middle" or "front" of the prompt
	ReadOffset int    // positions after the end of the text, on padding, as FedPHA's public code reads short prompts
}

// Text returns the class features [C,D] of a prompt ctx [T,w]. All prompts of a step go through the text tower in one
// pass.
func (s *Scope) Text(ctx graph.Node) graph.Node { return s.TextFeatures(Prompt{Ctx: ctx}) }

// TextWithLayout is Text with another layout or reading position.
func (s *Scope) TextWithLayout(ctx graph.Node, r PromptLayout) graph.Node {
	return s.TextFeatures(Prompt{Ctx: ctx, PromptLayout: r})
}

// HandText returns the class features [C,D] of the hand-written prompt.
func (s *Scope) HandText() graph.Node { return s.Texts() }

// Texts returns the class features [C,D] of hand-written templates, in which {} stands for the class: the mean of the
// unit features of all, made unit again. Without any it is the experiment's own template.
func (s *Scope) Texts(templates ...string) graph.Node {
	return s.handTexts(HandTexts{Templates: templates})
}

// RawTexts is Texts with the mean of the features as the text tower returns them, before they are unit.
func (s *Scope) RawTexts(templates ...string) graph.Node {
	return s.handTexts(HandTexts{Templates: templates, Raw: true})
}

func (s *Scope) handTexts(texts HandTexts) graph.Node {
	return s.g.Placeholder(texts, graph.Float, []int{s.task.Classes, s.task.Dim})
}

// TextsOf returns the class features [C,D] of a hand-written template, in which {} stands for the class and {of} for
// the text that a table has for the class.
func (s *Scope) TextsOf(template string, table map[string]string) graph.Node {
	if table == nil {
		table = map[string]string{}
	}
	return s.handTexts(HandTexts{Templates: []string{template}, Of: table})
}

// Vision returns the image features [B,D] of the batch with prompts, or the embeddings [B,M,v] of its patches: the
// image tower runs in every step.
func (s *Scope) Vision(p VisionPrompts) graph.Node {
	if !p.Changes.None() && s.task.VisionLayers == 0 {
		return s.g.Fail("the image tower of backbone %s, a ResNet or an exported model, does not support low-rank "+
			"changes or adapters", s.task.Backbone)
	}
	shape := []int{-1, s.task.Dim}
	if p.Embeddings {
		shape = []int{-1, s.task.Patches, s.task.VisionWidth}
	}
	p.Deep = withoutAbsentTail(p.Deep)
	x := s.g.Placeholder(PromptedImages{s.Pixels(), p}, graph.Float, shape)
	if p.Embeddings {
		return x
	}
	if x = x.L2Normalize(); s.spread == nil {
		return x
	}
	s.spread.used = true
	x = x.Add(s.Input(NoiseInput, graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(s.task.Dim)}))
	if s.spread.unit {
		x = x.L2Normalize()
	}
	return x
}

// PerExample returns x [B,...] and declares that entry i depends on image i alone, which a loop hides. A batch may then
// be computed in parts.
func (s *Scope) PerExample(x graph.Node) graph.Node {
	shape := []int{-1}
	for i := range x.Rank() - 1 {
		shape = append(shape, x.Dim(i+1))
	}
	return s.g.Placeholder(PerExample{x}, x.DType(), shape)
}

type spread struct{ unit, used bool }

// WithFeatureNoise returns a copy of this scope in which Vision adds the batch's noise to image features and, if unit
// is true, normalises them again. Features that are part of a batch are not changed.
func (s *Scope) WithFeatureNoise(unit bool) *Scope {
	c := *s
	c.spread, c.pair = &spread{unit: unit}, &[2]graph.Node{}
	return &c
}

// FeatureNoiseUsed reports whether Vision added noise in a scope of WithFeatureNoise.
func (s *Scope) FeatureNoiseUsed() bool { return s.spread != nil && s.spread.used }

// Cosine scores features x [B,D] against class features t [C,D]: exp(logit_scale) x tᵀ, [B,C].
func (s *Scope) Cosine(x, t graph.Node) graph.Node {
	if !s.pair[0].OK() {
		*s.pair = [2]graph.Node{x, t}
	}
	return x.MatMulT(t).MulScalar(s.task.Scale)
}

// ScoredPair returns the image features [B,D] and class features [C,D] of the first call of Cosine in this scope, those
// of Logits; zero nodes without a call.
func (s *Scope) ScoredPair() (x, t graph.Node) { return s.pair[0], s.pair[1] }

// Received returns a copy of this scope in which every parameter has the value that the server sent, a constant.
func (s *Scope) Received() *Scope { return s.frozen(ReceivedInput) }

// LastTrained returns a copy of this scope in which every parameter has the value after this client's last training, a
// constant.
func (s *Scope) LastTrained() *Scope { return s.frozen(BeforeInput) }

func (s *Scope) frozen(at InputKind) *Scope {
	c := *s
	c.at, c.pair = at, &[2]graph.Node{}
	return &c
}

// with holds the nodes of Substitute.
type with struct {
	word  string
	of    func(*Scope, string) graph.Node
	outer *with
}

// Substitute returns a copy of this scope in which other nodes stand in place of parameters. value returns the node for
// a parameter's name, given a scope that reads the parameters themselves, or the zero Node to keep the parameter. Names
// of terms and of auxiliary losses in the copy end in word.
func (s *Scope) Substitute(word string, value func(s *Scope, name string) graph.Node) *Scope {
	c := *s
	c.with, c.pair = &with{word, value, s.with}, &[2]graph.Node{}
	return &c
}

// named returns a name followed by the words of Substitute.
func (s *Scope) named(name string) string {
	for w := s.with; w != nil; w = w.outer {
		name += " " + w.word
	}
	return name
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
	EveryStep  Frequency = "step"
	EveryEpoch Frequency = "epoch"
	EveryRound Frequency = "round"
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
	if s.at != ParamInput {
		name = Input{s.at, name}.String()
	}
	if s.with != nil {
		name = "with/" + s.named(name)
	}
	if s.at != ParamInput || s.with != nil {
		f.Trace = nil // a trace has no place for a second value
	}
	call := HostCall{Name: name, Func: f}
	for _, n := range args {
		if n.Source() == nil {
			return s.g.Fail("host function %s: argument %v is not a parameter", name, n)
		}
		call.Args = append(call.Args, InputOf(n))
	}
	if !slices.ContainsFunc(*s.hosts, func(h HostCall) bool { return h.Name == name }) {
		*s.hosts = append(*s.hosts, call)
	}
	return s.Input(call.Input(), graph.Float, graph.Static(shape...))
}

// Params lists the parameters that the scope was made with.
func (s *Scope) Params() []Param { return s.params }
