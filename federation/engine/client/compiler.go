package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// compiler builds programs, and compiles each graph of a method once for all clients that have it. It is safe for
// concurrent use.
type compiler struct {
	e       *spec.Experiment
	options ort.Options
	plain   bool // graphs are those of a GPU
	texts   KeptTexts
	weights onnx.WeightFiles
	caches
	initial       *valueCache // of plan.initial
	evaluables    sync.Map    // record.Evaluable by ClientSpec
	leastProducts float64

	mu     sync.Mutex
	plans  map[planKey]*plan
	equal  map[string]*plan // by what plans of equal graphs have in common
	handMu sync.Mutex
	hands  map[string]*tensor.Tensor
	openMu sync.Mutex
	open   []*ort.Session
}

// planKey names the plan of a client.
type planKey struct {
	kind, backbone string
	task           method.ClientSpec
}

func newCompiler(e *spec.Experiment, set Settings, k caches, initial *valueCache) *compiler {
	return &compiler{e: e, options: set.Session, texts: set.Texts, caches: k, initial: initial,
		leastProducts: leastProducts, plans: map[planKey]*plan{}, equal: map[string]*plan{},
		plain: set.PlainGraphs || set.Session.WithProvider().Provider != ort.CPU, hands: map[string]*tensor.Tensor{}}
}

// evaluable returns the evaluations that the method has for a client.
func (c *compiler) evaluable(task method.ClientSpec) record.Evaluable {
	if e, ok := c.evaluables.Load(task); ok {
		return e.(record.Evaluable)
	}
	e := record.EvaluableOf(c.e.Method, task)
	c.evaluables.Store(task, e)
	return e
}

func (c *compiler) close() error {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	return ort.CloseAll(c.open...)
}

// step compiles the loss and its gradients with respect to every parameter.
func (c *compiler) step(b spec.Backbone, task method.ClientSpec) (*plan, error) {
	return c.once(stepKind, b, task, c.losses, func(s *method.Scope, losses []graph.Output) (*plan, error) {
		notBatchable := spec.NotBatchable(nodesOf(losses)...) != ""
		out, err := c.withGradients(b, s, losses, 1, nil)
		if err != nil {
			return nil, err
		}
		p := &plan{notBatchable: notBatchable}
		if out, p.images, err = c.withoutImageParts(b, s, nodesOf(losses), out); err != nil {
			return nil, err
		}
		p.program = c.program(b, s, out)
		p.images.read(p.program)
		p.several = func(clients int) ([]graph.Output, error) {
			s := c.scope(task)
			losses, err := c.losses(s)
			if err != nil {
				return nil, err
			}
			return c.withGradients(b, s, losses, clients, nil)
		}
		if p.initial, err = c.initialStep(b, s, losses); err == nil && p.initial == nil {
			_, err = p.session(1) // else the first step does not need it
		}
		return p, err
	})
}

// initialStep compiles a step for shared parameters as the server sent them; nil where no learned prompt depends on
// them alone, or where the values of its prefix take too much memory.
func (c *compiler) initialStep(b spec.Backbone, s *method.Scope, losses []graph.Output) (*plan, error) {
	if c.initial.capacity <= 0 {
		return nil, nil
	}
	common, found := initialInputs(s), false
	pass := func(prompt *graph.Op) int {
		in := graph.Inputs(prompt.In...)
		switch {
		case slices.ContainsFunc(in, func(n graph.Node) bool { return !common(n.Name()) }):
			return 2
		case slices.ContainsFunc(in, func(n graph.Node) bool {
			return strings.HasPrefix(n.Name(), method.ParamInput+"/")
		}):
			return 1
		}
		return 0 // it has no gradient
	}
	for _, op := range graph.Reachable(nodesOf(losses)...) {
		switch op.Placeholder().(type) {
		case method.PromptedImages:
			return nil, nil // beside the image tower, the text tower is little
		case method.Prompt:
			found = found || pass(op) == 1
		}
	}
	if !found {
		return nil, nil
	}
	out, err := c.withGradients(b, s, losses, 1, pass)
	if err != nil {
		return nil, err
	}
	rest, fixed := cut(nodesOf(out), func(in string) bool { return !common(in) })
	for i, n := range rest {
		if n.Op().IsInput() {
			return nil, nil // a gradient that no image enters
		}
		out[i].Node = n
	}
	for _, part := range fixed {
		if _, ok := part.Node.Shape().Ints(); !ok {
			return nil, nil
		}
	}
	prefix := c.program(b, s, fixed)
	if prefix.bytes > c.initial.capacity/2 {
		return nil, nil
	}
	var other errgroup.Group
	other.Go(func() error {
		_, err := prefix.session(1)
		return err
	})
	p, err := c.compile(b, s, out)
	return &plan{program: p, prefix: prefix, cache: c.initial}, errors.Join(other.Wait(), err)
}

// initialBytes bounds the values of plan.initial: those of 101 classes and a text tower of ViT-B/16's size have 77 MB.
const initialBytes = 512 << 20

// initialInputs returns a test for inputs that are the same for all clients of a round at the shared parameters that
// the server sent.
func initialInputs(s *method.Scope) func(input string) bool {
	common, shared := commonInputs(s), s.SharedNames()
	return func(input string) bool {
		name, ok := strings.CutPrefix(input, method.ParamInput+"/")
		return common(input) || ok && slices.Contains(shared, name)
	}
}

func (c *compiler) losses(s *method.Scope) ([]graph.Output, error) {
	loss := c.e.Method.Loss(s, c.e.Method.Logits(s))
	if err := s.Graph().Err(); err != nil {
		return nil, err
	}
	out := []graph.Output{{Name: lossOutput, Node: loss}}
	for _, l := range s.AuxLosses() {
		out = append(out, graph.Output{Name: auxOutput + l.Name + "/" + lossOutput, Node: l.Node})
	}
	return out, allUsed(s, loss)
}

// allUsed refuses declared parameters that the loss does not depend on: the server would average them, and no step
// would change them.
func allUsed(s *method.Scope, loss graph.Node) error {
	in := graph.Inputs(loss)
	for _, p := range s.Params() {
		name := method.ParamInput + "/" + p.Name
		node, ok := s.Graph().InputNamed(name)
		byHost := slices.ContainsFunc(s.Hosts(), func(h method.HostCall) bool {
			v, ok := s.Graph().InputNamed(method.HostInput + "/" + h.Name)
			return ok && slices.Contains(in, v) && slices.Contains(h.Of, name)
		})
		if !byHost && !(ok && slices.Contains(in, node)) {
			return fmt.Errorf("parameter %q is declared by Params but not used by the loss; use it or remove it",
				p.Name)
		}
	}
	return nil
}

// scope starts a graph that this worker's sessions run.
func (c *compiler) scope(task method.ClientSpec) *method.Scope {
	s := method.NewScope(task, c.e.Method.Params(task))
	if !c.plain {
		s.Graph().UseKernels()
	}
	return s
}

func (c *compiler) score(b spec.Backbone, task method.ClientSpec) (*plan, error) {
	return c.once("score", b, task, func(s *method.Scope) ([]graph.Output, error) {
		return valueOf(c.e.Method.Logits(s)), nil
	},
		func(s *method.Scope, of []graph.Output) (*plan, error) {
			p, err := c.split(b, s, of[0].Node)
			if err == nil && p.prefix != nil {
				p.prefix.several = func(clients int) ([]graph.Output, error) {
					s := c.scope(task)
					_, fixed := cutValue(c.e.Method.Logits(s))
					return c.forward(b, copies(s, fixed, clients))
				}
			}
			return p, err
		})
}

// eval compiles a value that a method computes over its data.
func (c *compiler) eval(b spec.Backbone, task method.ClientSpec, of func(*method.Scope) graph.Node) (*plan, error) {
	s := c.scope(task)
	n := of(s)
	if err := s.Graph().Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.same("eval", b, s, valueOf(n), func(s *method.Scope, of []graph.Output) (*plan, error) {
		return c.split(b, s, of[0].Node)
	})
}

// split compiles a value, and the parts of it that depend on no row of data as its prefix.
func (c *compiler) split(b spec.Backbone, s *method.Scope, n graph.Node) (*plan, error) {
	p, placed := &plan{cache: c.values, notBatchable: spec.NotBatchable(n) != ""}, n
	if p.notBatchable { // towers that see rows have parts that do not depend on rows
		all, err := c.forward(b, valueOf(n))
		if err != nil {
			return nil, err
		}
		n = all[0].Node
	}
	rest, fixed := cutValue(n)
	all, err := c.forward(b, append(fixed, graph.Output{Name: valueOutput, Node: rest}))
	if err != nil {
		return nil, err
	}
	fixed, value := all[:len(fixed)], all[len(fixed):]
	p.byRow = rest.Shape()[0] == graph.Sym("B")
	if value, p.images, err = c.withoutImageParts(b, s, []graph.Node{placed}, value); err != nil {
		return nil, err
	}
	if p.program, err = c.compile(b, s, value); err == nil && len(fixed) > 0 {
		p.prefix, err = c.compile(b, s, fixed)
	}
	if err == nil {
		p.images.read(p.program)
	}
	return p, err
}

// cutValue replaces the parts of a value that depend on no row of data by inputs, and returns them under their names.
func cutValue(n graph.Node) (rest graph.Node, fixed []graph.Output) {
	if n.Rank() == 0 {
		n = n.Reshape(1)
	}
	all, fixed := cut([]graph.Node{n}, spec.IsImageInput)
	return all[0], fixed
}

// cut replaces the parts of values that depend on none of some inputs.
func cut(roots []graph.Node, inputs func(name string) bool) (rest []graph.Node, fixed []graph.Output) {
	for _, part := range partsWithout(roots, inputs) {
		if part.Op().IsInput() || len(graph.Inputs(part)) == 0 || part.DType() == graph.Bool {
			continue
		}
		fixed = append(fixed, graph.Output{Name: prefixInput + strconv.Itoa(len(fixed)), Node: part})
	}
	return replaceAll(roots, nodesOf(fixed), func(i int) graph.Node {
		part := fixed[i].Node
		return part.Graph().Input(fixed[i].Name, part.DType(), part.Shape())
	}), fixed
}

// Kinds of plans whose values are losses.
const stepKind, termsKind = "step", "terms"

// once returns the compiled plan of a client; it builds the plan on first use. build makes the nodes and finish
// compiles them. A method may read every field of its ClientSpec, also the client's number, so build runs once for each
// ClientSpec. This is cheap, because towers are placeholders. Clients whose nodes have the same signature share one
// compiled plan, except for host functions, which may hold values of the ClientSpec.
func (c *compiler) once(kind string, b spec.Backbone, task method.ClientSpec, build func(*method.Scope) (
	[]graph.Output, error), finish func(*method.Scope, []graph.Output) (*plan, error)) (*plan, error) {
	key := planKey{kind, b.Name(), task}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.plans[key]; ok {
		return p, nil
	}
	s := c.scope(task)
	of, err := build(s)
	if err != nil {
		return nil, err
	}
	p, err := c.same(kind, b, s, of, finish)
	if err == nil {
		c.plans[key] = p
	}
	return p, err
}

// same returns the plan that finish made of nodes with the same signature, or compiles it. The caller holds c.mu.
func (c *compiler) same(kind string, b spec.Backbone, s *method.Scope, of []graph.Output,
	finish func(*method.Scope, []graph.Output) (*plan, error)) (*plan, error) {
	sum, err := graph.Signature(of...)
	if err != nil {
		return nil, err
	}
	same := fmt.Sprintf("%s %s %x", kind, b.Name(), sum)
	for _, p := range s.Params() {
		same += fmt.Sprintf(" %q", p.Name)
	}
	for _, h := range s.Hosts() {
		same += fmt.Sprintf(" %q %q %v", h.Name, h.Of, h.Func.Differentiable)
	}
	p, ok := c.equal[same]
	if !ok {
		memory, err := spec.MemoryOf(b, c.e.Classes, c.e.Training.Memory, nodesOf(of)...)
		if err != nil {
			return nil, err
		}
		if p, err = finish(s, of); err != nil {
			return nil, err
		}
		loss := kind == stepKind || kind == termsKind
		if p.byRow || loss && spec.MeanOverRows(nodesOf(of)...) {
			p.maxRows = memory.Rows()
		}
		if p.initial != nil {
			p.initial.maxRows = p.maxRows
		}
		c.equal[same] = p
	}
	return p.of(s), nil
}

func valueOf(n graph.Node) []graph.Output { return []graph.Output{{Name: valueOutput, Node: n}} }

func (c *compiler) lowered(b spec.Backbone, n graph.Node) (graph.Node, error) {
	out, err := c.allLowered(b, valueOf(n), nil, nil)
	if err != nil {
		return n, err
	}
	return out[0].Node, nil
}

// allLowered returns outputs in which towers take the place of placeholders.
func (c *compiler) allLowered(b spec.Backbone, of []graph.Output, passes passOf,
	chunks *classChunks) ([]graph.Output, error) {
	hand := func(of method.HandTexts) (*tensor.Tensor, error) { return c.handText(b, of) }
	nodes, err := lower(b, c.e.Classes, c.e.Template, hand, passes, chunks, nodesOf(of))
	if err != nil {
		return nil, err
	}
	out := slices.Clone(of)
	for i := range out {
		out[i].Node = nodes[i]
	}
	return out, nodes[0].Graph().Err()
}

// forward is allLowered for values without gradients, with as many classes at a time as in a step.
func (c *compiler) forward(b spec.Backbone, of []graph.Output) ([]graph.Output, error) {
	memory, err := spec.MemoryOf(b, c.e.Classes, c.e.Training.Memory, nodesOf(of)...)
	if err != nil {
		return nil, err
	}
	rows := max(1, memory.Rows())
	return c.allLowered(b, of, nil, &classChunks{bound: memory.Text(rows), rows: rows})
}

// withGradients returns the losses of n clients, each with its gradients. The name of a loss is PREFIX and lossOutput;
// its gradients have the same prefix.
func (c *compiler) withGradients(b spec.Backbone, s *method.Scope, losses []graph.Output,
	n int, passes passOf) ([]graph.Output, error) {
	all := copies(s, losses, n)
	reach := make([][]graph.Node, len(all))
	for i, l := range all { // before lowering: prompts that share a pass through the text tower reach all losses
		reach[i] = graph.Inputs(l.Node)
	}
	memory, err := spec.MemoryOf(b, c.e.Classes, c.e.Training.Memory, nodesOf(losses)...)
	if err != nil {
		return nil, err
	}
	rows := memory.StepRows(c.e.Training, nodesOf(losses)...)
	chunks := &classChunks{bound: memory.Text(rows), rows: rows}
	lowered, err := c.allLowered(b, all, passes, chunks)
	if err != nil {
		return nil, err
	}
	var out []graph.Output
	for i := range losses {
		var names []string
		var wrt []graph.Node
		var sum graph.Node
		for k := i; k < len(all); k += len(losses) {
			loss, err := scalarLoss(lowered[k].Node)
			if err != nil {
				return nil, err
			}
			out = append(out, graph.Output{Name: all[k].Name, Node: loss.Reshape(1)})
			if k == i {
				sum = loss
			} else {
				sum = sum.Add(loss)
			}
			at := strings.TrimSuffix(all[k].Name, lossOutput)
			client := strings.TrimSuffix(all[k].Name, losses[i].Name)
			for _, input := range trainable(s) {
				if d, ok := s.Graph().InputNamed(client + input); ok && slices.Contains(reach[k], d) {
					names, wrt = append(names, at+gradOutput+input), append(wrt, d)
				}
			}
		}
		if len(wrt) == 0 {
			continue
		}
		scale := c.options.LossScale()
		if scale != 1 {
			sum = sum.MulScalar(scale)
		}
		grads, err := chunks.gradients(sum, wrt)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", losses[i].Name, err)
		}
		for k, d := range grads {
			if scale != 1 {
				d = d.MulScalar(1 / scale)
			}
			out = append(out, graph.Output{Name: names[k], Node: d})
		}
	}
	return out, nil
}

func scalarLoss(n graph.Node) (graph.Node, error) {
	if size, ok := n.Shape().Ints(); !ok || tensor.Size(size) != 1 {
		return n, fmt.Errorf("the loss has shape %v; it must be one number", n.Shape())
	}
	if n.Rank() != 0 {
		n = n.Reshape()
	}
	return n, nil
}

// trainable lists the inputs that have gradients: parameters, and values of differentiable host functions.
func trainable(s *method.Scope) (out []string) {
	for _, p := range s.Params() {
		out = append(out, method.ParamInput+"/"+p.Name)
	}
	for _, h := range s.Hosts() {
		if h.Func.Differentiable {
			out = append(out, method.HostInput+"/"+h.Name)
		}
	}
	return out
}

func (c *compiler) gradients(b spec.Backbone, s *method.Scope, losses []graph.Output) (*plan, error) {
	out, err := c.withGradients(b, s, losses, 1, nil)
	if err != nil {
		return nil, err
	}
	out, images, err := c.withoutImageParts(b, s, nodesOf(losses), out)
	if err != nil {
		return nil, err
	}
	p, err := c.compile(b, s, out)
	if err == nil {
		images.read(p)
	}
	return &plan{program: p, images: images}, err
}

// terms compiles every term of the loss with its gradients, named termOutput and the term's name.
func (c *compiler) terms(b spec.Backbone, task method.ClientSpec) (*plan, error) {
	return c.once(termsKind, b, task, func(s *method.Scope) ([]graph.Output, error) {
		loss := c.e.Method.Loss(s, c.e.Method.Logits(s))
		if err := s.Graph().Err(); err != nil {
			return nil, err
		}
		terms, err := s.Terms(loss)
		var out []graph.Output
		for _, t := range terms {
			out = append(out, graph.Output{Name: termOutput + t.Name + "/" + lossOutput, Node: t.Node})
		}
		return out, err
	}, func(s *method.Scope, terms []graph.Output) (*plan, error) { return c.gradients(b, s, terms) })
}

// session compiles outputs. Equal graphs of a process are compiled once.
func (c *compiler) session(b spec.Backbone, out []graph.Output) (*ort.Session, error) {
	o := c.options
	if b != nil {
		o.WeightsDir = b.WeightsDir()
	}
	model, err := c.model(o.WeightsDir, out...)
	if err != nil {
		return nil, err
	}
	s, err := ort.NewCachedSession(model, o)
	if err != nil {
		return nil, err
	}
	c.openMu.Lock()
	defer c.openMu.Unlock()
	c.open = append(c.open, s)
	return s, nil
}

// model writes outputs as a model. Their weights lie in dir and must not have changed since earlier models.
func (c *compiler) model(dir string, out ...graph.Output) (*onnx.ModelProto, error) {
	m, err := graph.Model(out...)
	if err == nil {
		err = c.weights.Check(m, dir)
	}
	return m, err
}

func (c *compiler) compile(b spec.Backbone, s *method.Scope, out []graph.Output) (*program, error) {
	p := c.program(b, s, out)
	_, err := p.session(1)
	return p, err
}

// program is compile, but the session is made on first use.
func (c *compiler) program(b spec.Backbone, s *method.Scope, out []graph.Output) *program {
	p := &program{number: lastProgram.Add(1)}
	one := sync.OnceValues(func() (*ort.Session, error) { return c.session(b, out) })
	var together sync.Map // by number of clients
	p.session = func(clients int) (*ort.Session, error) {
		if clients == 1 {
			return one()
		}
		session, ok := together.Load(clients)
		if !ok {
			session, _ = together.LoadOrStore(clients, sync.OnceValues(func() (*ort.Session, error) {
				all, err := p.several(clients)
				if err != nil {
					return nil, err
				}
				return c.session(b, all)
			}))
		}
		return session.(func() (*ort.Session, error))()
	}
	for _, o := range out {
		size := 4
		for _, d := range o.Node.Shape() {
			size *= max(1, d.N)
		}
		p.bytes += size
		if name, ok := strings.CutPrefix(o.Name, gradOutput); ok {
			p.params = append(p.params, name)
		} else if name, ok := strings.CutPrefix(o.Name, auxOutput); ok {
			if loss, last, _ := strings.Cut(name, "/"); last == lossOutput {
				p.auxLosses = append(p.auxLosses, loss)
			}
		} else if name, ok := strings.CutPrefix(o.Name, termOutput); ok {
			if term, last, _ := strings.Cut(name, "/"); last == lossOutput {
				p.terms = append(p.terms, term)
			}
		}
	}
	for _, n := range graph.Inputs(nodesOf(out)...) {
		p.inputs = append(p.inputs, n.Name())
		if slices.Contains(spec.LargeInputs, n.Name()) {
			p.largeInputs = append(p.largeInputs, n.Name())
		}
	}
	p.hosts = p.hostsOf(s)
	return p
}

// handText returns the features [C,D] of hand-written prompts of a backbone, unit rows, computed once: of one template,
// the features of its texts; of several templates, the unit mean of their features, which are unit unless Raw.
func (c *compiler) handText(b spec.Backbone, of method.HandTexts) (*tensor.Tensor, error) {
	if len(of.Templates) == 0 {
		of.Templates = []string{c.e.Template}
	}
	c.handMu.Lock()
	defer c.handMu.Unlock()
	key := fmt.Sprintf("%q %#v", b.Name(), of)
	if t, ok := c.hands[key]; ok {
		return t, nil
	}
	g := graph.New()
	var n graph.Node
	for k, template := range of.Templates {
		if !strings.Contains(template, "{}") {
			return nil, fmt.Errorf("template %q of the hand-written prompts must contain {} for the class name",
				template)
		}
		texts := make([]string, len(c.e.Classes))
		for i, name := range c.e.Classes {
			texts[i] = spec.Sentence(template, name)
			if of.Of == nil {
				continue
			}
			if of.Of[name] == "" {
				return nil, fmt.Errorf("the texts by class %q have none for class %q; add it to the options",
					template, name)
			}
			texts[i] = strings.ReplaceAll(texts[i], "{of}", of.Of[name])
		}
		one, err := b.Sentences(g, texts)
		if err != nil {
			return nil, fmt.Errorf("backbone %s: %w", b.Name(), err)
		}
		if len(of.Templates) > 1 && !of.Raw {
			one = one.L2Normalize()
		}
		if k == 0 {
			n = one
		} else {
			n = n.Add(one)
		}
	}
	// The texts are constants, but ONNX Runtime runs no graph without an input. Without optimisation it does not
	// compute the whole tower while it loads the graph.
	one := g.Input("one", graph.Float, graph.Static(1))
	o := c.options
	o.WeightsDir, o.OptLevel = b.WeightsDir(), ort.OptNone
	model, err := c.model(o.WeightsDir, graph.Output{Name: valueOutput, Node: n.L2Normalize().Mul(one)})
	if err != nil {
		return nil, err
	}
	v, err := c.keptText(b, model, o, n.Shape())
	if err != nil {
		return nil, err
	}
	c.hands[key] = v
	return v, nil
}

// keptText runs the model of handText, whose value has a shape, unless its value is kept: under the model, with its
// tokens and options, the digest of its weights, and the numerics of its session.
func (c *compiler) keptText(b spec.Backbone, model *onnx.ModelProto, o ort.Options,
	shape graph.Shape) (*tensor.Tensor, error) {
	compute := func() (*tensor.Tensor, error) {
		v, err := ort.RunOnce(context.Background(), model, o, tensor.Map{"one": tensor.Of([]float32{1}, 1)})
		return v[valueOutput], err
	}
	size, ok := shape.Ints()
	weights := c.e.Digests[b.Name()]
	if c.texts == nil || !ok || weights == "" {
		return compute()
	}
	f, err := o.Fingerprint()
	if err != nil {
		return nil, err
	}
	text, err := onnx.Marshal(model)
	if err != nil {
		return nil, err
	}
	return c.texts(sha256.Sum256(fmt.Appendf(nil, "texts %s %s %s", weights, f.Digest(), text)), size, compute)
}
