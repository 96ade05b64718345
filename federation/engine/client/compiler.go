package client

import (
	"cmp"
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
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ops"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// compiler builds programs, and compiles each graph of a method once for all clients that have it. It is safe for
// concurrent use.
type compiler struct {
	experiment *spec.Experiment
	options    ort.Options
	kernels    graph.KernelSet // that graphs use
	texts      KeptTexts
	programs   Programs // nil for the graphs as they are built
	weights    onnx.WeightFiles
	caches
	evaluables    sync.Map // record.Evaluable by ClientSpec
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
	kind     Kind
	backbone string
	task     method.ClientSpec
}

func newCompiler(experiment *spec.Experiment, set Settings, k caches) *compiler {
	kernels := set.Session.Kernels()
	switch {
	case set.Programs != nil:
		kernels = graph.NoKernels
	case set.DeviceGraphs:
		kernels = graph.DeviceKernels
	}

	return &compiler{experiment: experiment, options: set.Session, texts: set.Texts, programs: set.Programs, caches: k,
		leastProducts: leastProducts, plans: map[planKey]*plan{}, equal: map[string]*plan{},
		hands: map[string]*tensor.Tensor{}, kernels: kernels}
}

// evaluable returns the evaluations that the method has for a client.
func (c *compiler) evaluable(task method.ClientSpec) record.Evaluable {
	if e, ok := c.evaluables.Load(task); ok {
		return e.(record.Evaluable)
	}
	e := record.EvaluableOf(c.experiment.Method, task)
	c.evaluables.Store(task, e)
	return e
}

func (c *compiler) close() error {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	return ort.CloseAll(c.open...)
}

// step compiles the loss and its gradients with respect to every parameter.
func (c *compiler) step(ctx context.Context, backbone spec.Backbone, task method.ClientSpec) (*plan, error) {
	return c.once(StepProgram, backbone, task, func(scope *method.Scope) ([]graph.Output, finish, error) {
		losses, err := c.losses(scope)
		return valuesOf(losses), func() (*plan, error) {
			plan, err := c.lossPlan(ctx, StepProgram, backbone, scope, losses)
			if err != nil {
				return nil, err
			}

			plan.several = func(clients int) ([]graph.Output, error) {
				scope := c.scope(task)
				losses, err := c.losses(scope)
				if err != nil {
					return nil, err
				}
				return c.withGradients(ctx, backbone, scope, losses, clients, nil)
			}

			if plan.initial, err = c.initialStep(ctx, backbone, scope, losses); err == nil && plan.initial == nil {
				_, err = plan.session(1) // else the first step does not need it
			}

			return plan, err
		}, err
	})
}

// initialStep compiles a step for shared parameters as the server sent them; nil where no learned prompt depends on
// them alone, or where the values of its prefix take too much memory.
func (c *compiler) initialStep(ctx context.Context, backbone spec.Backbone, scope *method.Scope,
	losses []lossNode) (*plan, error) {
	if c.initial.capacity <= 0 {
		return nil, nil
	}

	common, found := commonInputs(scope, method.ReceivedInput, method.ParamInput), false
	pass := func(prompt *graph.Op) int {
		read := method.Inputs(prompt.In...)
		switch {
		case slices.ContainsFunc(read, func(in method.Input) bool { return !common(in) }):
			return 2
		case slices.ContainsFunc(read, func(in method.Input) bool { return in.Kind == method.ParamInput }):
			return 1
		}
		return 0 // it has no gradient
	}

	for _, op := range graph.Reachable(nodesOf(valuesOf(losses))...) {
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

	out, err := c.withGradients(ctx, backbone, scope, losses, 1, pass)
	if err != nil {
		return nil, err
	}

	rest, fixed := cut(nodesOf(out), func(in method.Input) bool { return !common(in) })
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

	prefix := c.program(FixedProgram, backbone, scope, fixed, nil)
	if prefix.bytes > c.initial.capacity/2 {
		return nil, nil
	}

	var other errgroup.Group
	other.Go(func() error {
		_, err := prefix.session(1)
		return err
	})

	p, err := c.compile(StepProgram, backbone, scope, out)
	return &plan{program: p, prefix: prefix, cache: c.initial}, errors.Join(other.Wait(), err)
}

// initialBytes bounds the values of plan.initial: those of 101 classes and a text tower of ViT-B/16's size have 77 MB.
const initialBytes = 512 << 20

func (c *compiler) losses(scope *method.Scope) ([]lossNode, error) {
	trained := c.experiment.Method.Loss(scope, c.experiment.Method.Logits(scope))
	if err := scope.Graph().Err(); err != nil {
		return nil, err
	}
	return append([]lossNode{{node: trained}}, lossesOf(auxiliaryLoss, scope.Built().AuxLosses)...),
		allUsed(scope, trained)
}

// allUsed refuses declared parameters that the loss does not depend on: the server would average them, and no step
// would change them.
func allUsed(scope *method.Scope, loss graph.Node) error {
	read := scope.Reads(loss)
	for _, p := range scope.Params() {
		if !slices.Contains(read, method.Input{Kind: method.ParamInput, Name: p.Name}) {
			return fmt.Errorf("parameter %q is declared by Params but not used by the loss; use it or remove it",
				p.Name)
		}
	}

	return nil
}

// scope starts a graph that this worker's sessions run.
func (c *compiler) scope(task method.ClientSpec) *method.Scope {
	scope := method.ScopeOf(c.experiment.Method, task)
	scope.Graph().UseKernels(c.kernels)
	return scope
}

func (c *compiler) score(ctx context.Context, b spec.Backbone, task method.ClientSpec) (*plan, error) {
	return c.once(ScoresProgram, b, task, func(scope *method.Scope) ([]graph.Output, finish, error) {
		logits := c.experiment.Method.Logits(scope)
		return valueOf(logits), func() (*plan, error) {
			p, err := c.split(ctx, ScoresProgram, b, scope, logits)
			if err == nil && p.prefix != nil {
				p.prefix.several = func(clients int) ([]graph.Output, error) {
					scope := c.scope(task)
					_, fixed := cutValue(c.experiment.Method.Logits(scope))
					return c.forward(ctx, b, copies(scope, fixed, clients))
				}
			}
			return p, err
		}, nil
	})
}

// eval compiles a value that a method computes over its data.
func (c *compiler) eval(ctx context.Context, backbone spec.Backbone, task method.ClientSpec,
	build func(*method.Scope) graph.Node) (*plan, error) {
	scope := c.scope(task)
	n := build(scope)
	if err := scope.Graph().Err(); err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	return c.same(ValueProgram, backbone, scope, valueOf(n), func() (*plan, error) {
		return c.split(ctx, ValueProgram, backbone, scope, n)
	})
}

// split compiles a value, and the parts of it that depend on no row of data as its prefix.
func (c *compiler) split(ctx context.Context, kind Kind, backbone spec.Backbone, scope *method.Scope,
	n graph.Node) (*plan, error) {
	plan, placed := &plan{cache: c.values, notBatchable: spec.NotBatchable(n) != ""}, n
	if plan.notBatchable { // towers that see rows have parts that do not depend on rows
		all, err := c.forward(ctx, backbone, valueOf(n))
		if err != nil {
			return nil, err
		}
		n = all[0].Node
	}

	rest, fixed := cutValue(n)
	all, err := c.forward(ctx, backbone, append(fixed, graph.Output{Name: valueOutput, Node: rest}))
	if err != nil {
		return nil, err
	}

	fixed, value := all[:len(fixed)], all[len(fixed):]
	plan.byRow = rest.Shape()[0] == graph.Sym("B")
	if value, plan.images, err = c.withoutImageParts(backbone, scope, []graph.Node{placed}, value); err != nil {
		return nil, err
	}

	if plan.program, err = c.compile(kind, backbone, scope, value); err == nil && len(fixed) > 0 {
		plan.prefix, err = c.compile(FixedProgram, backbone, scope, fixed)
	}

	if err == nil {
		plan.images.read(plan.program)
	}

	return plan, err
}

// cutValue replaces the parts of a value that depend on no row of data by inputs, and returns them under their names.
func cutValue(n graph.Node) (rest graph.Node, fixed []graph.Output) {
	if n.Rank() == 0 {
		n = n.Reshape(1)
	}
	all, fixed := cut([]graph.Node{n}, spec.IsRow)
	return all[0], fixed
}

// cut replaces the parts of values that depend on none of some inputs.
func cut(roots []graph.Node, inputs func(method.Input) bool) (rest []graph.Node, fixed []graph.Output) {
	at := func(i int) method.Input { return method.Input{Kind: FixedInput, Name: strconv.Itoa(i)} }
	for _, part := range partsWithout(roots, inputs) {
		if part.Op().IsInput() || len(graph.Inputs(part)) == 0 || part.DType() == graph.Bool {
			continue
		}
		fixed = append(fixed, graph.Output{Name: at(len(fixed)).String(), Node: part})
	}

	return Replace(roots, nodesOf(fixed), func(i int) graph.Node {
		part := fixed[i].Node
		return part.Graph().InputFrom(at(i), part.DType(), part.Shape())
	}), fixed
}

// finish compiles a plan.
type finish func() (*plan, error)

// once returns the compiled plan of a client; it builds the plan on first use. build makes the nodes and returns the
// function that compiles them. A method may read every field of its ClientSpec, also the client's number, so build runs
// once for each ClientSpec. This is cheap, because towers are placeholders. Clients whose nodes have the same signature
// share one compiled plan, except for host functions, which may hold values of the ClientSpec.
func (c *compiler) once(kind Kind, backbone spec.Backbone, task method.ClientSpec, build func(*method.Scope) (
	[]graph.Output, finish, error)) (*plan, error) {
	key := planKey{kind, backbone.Name(), task}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.plans[key]; ok {
		return p, nil
	}

	scope := c.scope(task)
	nodes, compile, err := build(scope)
	if err != nil {
		return nil, err
	}

	p, err := c.same(kind, backbone, scope, nodes, compile)
	if err == nil {
		c.plans[key] = p
	}

	return p, err
}

// same returns the plan that was compiled of nodes with the same signature, or compiles it. The caller holds c.mu.
func (c *compiler) same(kind Kind, backbone spec.Backbone, scope *method.Scope, nodes []graph.Output,
	compile finish) (*plan, error) {
	sum, err := graph.Signature(nodes...)
	if err != nil {
		return nil, err
	}

	same := fmt.Sprintf("%s %s %x", kind, backbone.Name(), sum)
	for _, p := range scope.Params() {
		same += fmt.Sprintf(" %q", p.Name)
	}

	for _, h := range scope.Built().Hosts {
		same += fmt.Sprintf(" %q %q %v", h.Name, h.Args, h.Func.Differentiable)
	}

	plan, ok := c.equal[same]
	if !ok {
		memory, err := spec.MemoryOf(backbone, c.experiment.Classes, c.experiment.Training.Memory, nodesOf(nodes)...)
		if err != nil {
			return nil, err
		}

		if plan, err = compile(); err != nil {
			return nil, err
		}

		loss := kind == StepProgram || kind == TermsProgram
		if plan.byRow || loss && spec.MeanOverRows(nodesOf(nodes)...) {
			plan.maxRows = memory.Rows()
		}

		if plan.initial != nil {
			plan.initial.maxRows = plan.maxRows
		}

		c.equal[same] = plan
	}

	return plan.withHosts(scope), nil
}

func valueOf(n graph.Node) []graph.Output { return []graph.Output{{Name: valueOutput, Node: n}} }

// allLowered returns outputs in which towers take the place of placeholders.
func (c *compiler) allLowered(ctx context.Context, b spec.Backbone, outputs []graph.Output, passes passOf,
	chunks *classChunks) ([]graph.Output, error) {
	hand := func(texts method.HandTexts) (*tensor.Tensor, error) { return c.handText(ctx, b, texts) }
	nodes, err := lower(b, c.experiment.Classes, c.experiment.Template, hand, passes, chunks, nodesOf(outputs))
	if err != nil {
		return nil, err
	}

	out := slices.Clone(outputs)
	for i := range out {
		out[i].Node = nodes[i]
	}

	return out, nodes[0].Graph().Err()
}

// forward is allLowered for values without gradients, with as many classes at a time as in a step.
func (c *compiler) forward(ctx context.Context, b spec.Backbone, outputs []graph.Output) ([]graph.Output, error) {
	memory, err := spec.MemoryOf(b, c.experiment.Classes, c.experiment.Training.Memory, nodesOf(outputs)...)
	if err != nil {
		return nil, err
	}
	rows := max(1, memory.Rows())
	return c.allLowered(ctx, b, outputs, nil, &classChunks{bound: memory.Text(rows), rows: rows})
}

// withGradients returns the losses of n clients, each with its gradients.
func (c *compiler) withGradients(ctx context.Context, backbone spec.Backbone, scope *method.Scope, losses []lossNode,
	n int, passes passOf) ([]graph.Output, error) {
	one := valuesOf(losses)
	memory, err := spec.MemoryOf(backbone, c.experiment.Classes, c.experiment.Training.Memory, nodesOf(one)...)
	if err != nil {
		return nil, err
	}

	rows := memory.StepRows(c.experiment.Training, nodesOf(one)...)
	chunks := &classChunks{bound: memory.Text(rows), rows: rows}
	all := copies(scope, one, n)
	lowered, err := c.allLowered(ctx, backbone, all, passes, chunks)
	if err != nil {
		return nil, err
	}

	var out []graph.Output
	for i, loss := range losses {
		var names []string
		var wrt []graph.Node
		var sum graph.Node
		for k := range n {
			at := i + k*len(losses)
			value, err := scalarLoss(lowered[at].Node)
			if err != nil {
				return nil, err
			}

			out = append(out, graph.Output{Name: all[at].Name, Node: value.Reshape(1)})
			if k == 0 {
				sum = value
			} else {
				sum = sum.Add(value)
			}

			for _, in := range learned(scope, loss.node) {
				node, _ := scope.Graph().InputNamed(ofClient(k, n, in.String()))
				names, wrt = append(names, ofClient(k, n, loss.gradient(in))), append(wrt, node)
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
			return nil, fmt.Errorf("%s: %w", loss.value(), err)
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

// learned lists the inputs with gradients that a loss depends on before towers are in the graph, since prompts that
// share a pass through the text tower reach all losses: parameters, and values of differentiable host functions.
func learned(scope *method.Scope, loss graph.Node) []method.Input {
	all := convert.Slice(scope.Params(), func(p method.Param) method.Input {
		return method.Input{Kind: method.ParamInput, Name: p.Name}
	})

	for _, h := range scope.Built().Hosts {
		if h.Func.Differentiable {
			all = append(all, h.Input())
		}
	}

	read := method.Inputs(loss)
	return slices.DeleteFunc(all, func(in method.Input) bool { return !slices.Contains(read, in) })
}

// lossPlan returns the plan of losses and their gradients, whose session is made on first use.
func (c *compiler) lossPlan(ctx context.Context, kind Kind, backbone spec.Backbone, scope *method.Scope,
	losses []lossNode) (*plan, error) {
	out, err := c.withGradients(ctx, backbone, scope, losses, 1, nil)
	if err != nil {
		return nil, err
	}

	nodes := nodesOf(valuesOf(losses))
	plan := &plan{notBatchable: spec.NotBatchable(nodes...) != "", learned: learned(scope, losses[0].node)}
	gradients := map[string]method.Input{}
	for _, l := range losses { // without its node: a plan does not keep the graph
		plan.losses = append(plan.losses, l.lossName)
		for _, in := range learned(scope, l.node) {
			gradients[l.gradient(in)] = in
		}
	}

	if out, plan.images, err = c.withoutImageParts(backbone, scope, nodes, out); err == nil {
		plan.program = c.program(kind, backbone, scope, out, gradients)
		plan.images.read(plan.program)
	}

	return plan, err
}

// gradients is lossPlan with its session.
func (c *compiler) gradients(ctx context.Context, kind Kind, b spec.Backbone, scope *method.Scope,
	losses []lossNode) (*plan, error) {
	p, err := c.lossPlan(ctx, kind, b, scope, losses)
	if err == nil {
		_, err = p.session(1)
	}
	return p, err
}

// terms compiles every term of the loss with its gradients.
func (c *compiler) terms(ctx context.Context, b spec.Backbone, task method.ClientSpec) (*plan, error) {
	return c.once(TermsProgram, b, task, func(scope *method.Scope) ([]graph.Output, finish, error) {
		loss := c.experiment.Method.Loss(scope, c.experiment.Method.Logits(scope))
		if err := scope.Graph().Err(); err != nil {
			return nil, nil, err
		}
		terms, err := scope.Built().Terms(loss)
		losses := lossesOf(termLoss, terms)
		return valuesOf(losses), func() (*plan, error) { return c.gradients(ctx, TermsProgram, b, scope, losses) }, err
	})
}

// session compiles outputs. Equal graphs of a process are compiled once.
func (c *compiler) session(kind Kind, b spec.Backbone, out []graph.Output,
	gradients map[string]method.Input) (*ort.Session, error) {
	o := c.options
	if b != nil {
		o.WeightsDir = b.WeightsDir()
	}

	model, err := c.model(kind, b, out, gradients)
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

// model writes outputs as a model, or returns the one in its place. Its weights are those of the backbone, and must not
// have changed since earlier models. gradients are the inputs whose gradients outputs are.
func (c *compiler) model(kind Kind, backbone spec.Backbone, out []graph.Output,
	gradients map[string]method.Input) (*onnx.ModelProto, error) {
	dir := ""
	if backbone != nil {
		dir = backbone.WeightsDir()
	}

	if c.programs != nil {
		out = ops.StandardOutputs(out)
	}

	model, err := graph.Model(out...)
	if err == nil {
		err = c.weights.Check(model, dir)
	}

	if err != nil || c.programs == nil {
		return model, err
	}

	p := Program{Kind: kind, Weights: dir, Inputs: method.Inputs(nodesOf(out)...), Gradients: gradients}
	if backbone != nil {
		p.Backbone = backbone.Name()
	}

	return c.programs.Program(p, model)
}

func (c *compiler) compile(kind Kind, b spec.Backbone, scope *method.Scope, out []graph.Output) (*program, error) {
	p := c.program(kind, b, scope, out, nil)
	_, err := p.session(1)
	return p, err
}

// program is compile, but the session is made on first use.
func (c *compiler) program(kind Kind, backbone spec.Backbone, scope *method.Scope, out []graph.Output,
	gradients map[string]method.Input) *program {
	program := &program{number: lastProgram.Add(1), common: commonInputs(scope, method.ReceivedInput)}
	var sessions sync.Map // by number of clients
	program.session = func(clients int) (*ort.Session, error) {
		session, ok := sessions.Load(clients)
		if !ok {
			session, _ = sessions.LoadOrStore(clients, sync.OnceValues(func() (*ort.Session, error) {
				if clients == 1 {
					return c.session(kind, backbone, out, gradients)
				}
				all, err := program.several(clients)
				if err != nil {
					return nil, err
				}
				return c.session(kind, backbone, all, nil)
			}))
		}

		return session.(func() (*ort.Session, error))()
	}

	for _, o := range out {
		size := 4
		for _, d := range o.Node.Shape() {
			size *= max(1, d.N)
		}
		program.bytes += size
		program.outputs = append(program.outputs, o.Name)
	}

	program.inputs = method.Inputs(nodesOf(out)...)
	program.largeInputs = spec.LargeInputsOf(program.inputs)
	program.hosts = program.hostsOf(scope)
	return program
}

// handText returns the features [C,D] of hand-written prompts of a backbone, unit rows, computed once: of one template,
// the features of its texts; of several templates, the unit mean of their features, which are unit unless Raw.
func (c *compiler) handText(ctx context.Context, backbone spec.Backbone,
	wanted method.HandTexts) (*tensor.Tensor, error) {
	if len(wanted.Templates) == 0 {
		wanted.Templates = []string{c.experiment.Template}
	}

	c.handMu.Lock()
	defer c.handMu.Unlock()
	key := fmt.Sprintf("%q %#v", backbone.Name(), wanted)
	if t, ok := c.hands[key]; ok {
		return t, nil
	}

	g := graph.New()
	var features graph.Node
	for k, template := range wanted.Templates {
		if !strings.Contains(template, "{}") {
			return nil, fmt.Errorf("template %q of the hand-written prompts must contain {} for the class name",
				template)
		}

		texts := make([]string, len(c.experiment.Classes))
		for i, name := range c.experiment.Classes {
			texts[i] = spec.Sentence(template, name)
			if wanted.Of == nil {
				continue
			}
			own := cmp.Or(wanted.Of[name], wanted.Of[strings.ToLower(name)]) // keys of a file lose their case
			if own == "" {
				return nil, fmt.Errorf("the texts by class %q have none for class %q; add it to the options",
					template, name)
			}
			texts[i] = strings.ReplaceAll(texts[i], "{of}", own)
		}

		one, err := backbone.Sentences(g, texts)
		if err != nil {
			return nil, fmt.Errorf("backbone %s: %w", backbone.Name(), err)
		}

		if len(wanted.Templates) > 1 && !wanted.Raw {
			one = one.L2Normalize()
		}

		if k == 0 {
			features = one
		} else {
			features = features.Add(one)
		}
	}

	// The texts are constants, but ONNX Runtime runs no graph without an input. Without optimisation it does not
	// compute the whole tower while it loads the graph.
	one := g.Input("one", graph.Float, graph.Static(1))
	o := c.options
	o.WeightsDir, o.OptLevel = backbone.WeightsDir(), ort.OptNone
	model, err := c.model(TextsProgram, backbone, valueOf(features.L2Normalize().Mul(one)), nil)
	if err != nil {
		return nil, err
	}

	v, err := c.keptText(ctx, backbone, model, o, features.Shape())
	if err != nil {
		return nil, err
	}

	c.hands[key] = v
	return v, nil
}

// keptText runs the model of handText, whose value has a shape, unless its value is kept: under the model, with its
// tokens and options, the digest of its weights, and the numerics of its session.
func (c *compiler) keptText(ctx context.Context, b spec.Backbone, model *onnx.ModelProto, options ort.Options,
	shape graph.Shape) (*tensor.Tensor, error) {
	compute := func() (*tensor.Tensor, error) {
		v, err := ort.RunOnce(ctx, model, options, tensor.Map{"one": tensor.Of([]float32{1}, 1)})
		return v[valueOutput], err
	}

	size, ok := shape.Ints()
	weights := c.experiment.Digests[b.Name()]
	if c.texts == nil || !ok || weights == "" {
		return compute()
	}

	f, err := options.Fingerprint()
	if err != nil {
		return nil, err
	}

	text, err := onnx.Marshal(model)
	if err != nil {
		return nil, err
	}

	return c.texts(sha256.Sum256(fmt.Appendf(nil, "texts %s %s %s", weights, f.Digest(), text)), size, compute)
}
