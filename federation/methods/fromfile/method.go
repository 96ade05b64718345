package fromfile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// at names the file in errors; open checks a file without its name.
func (m ONNX) at() string {
	if m.name == "" {
		return ""
	}
	return m.name + ": "
}

// Properties states what the server needs: the mean, where the file declares it and computes nothing else.
func (m ONNX) Properties() method.Properties {
	var properties method.Properties
	if m.File == Example {
		properties.Note = "method onnx trains the file in the program, PromptFL; options.file names another"
	}

	switch {
	case m.merges():
		properties.Needs = "every client's upload, from which outputs of " + m.name + " compute what the server keeps"
	case m.file.meta.Mean == "":
		properties.Needs = "what " + m.name + ` does not declare; add "mean": "examples" to its ` +
			"metadata if the mean is enough"
	default:
		properties.Mean = method.ByExamples
	}

	if len(m.outputs(merged)) > 0 {
		properties.Roles = map[method.Role]string{method.ServerStep: ""}
	}

	return properties
}

// merges reports whether the server computes outputs.
func (m ONNX) merges() bool { return len(m.outputs(merged, nextDown)) > 0 }

// View is the view of the file's metadata: personal, or global where they name none.
func (m ONNX) View() method.View {
	if m.file.meta.View == "personal" {
		return method.PersonalView
	}
	return method.GlobalView
}

// Params declares the parameters of the file's metadata with the sizes of one client. T is that of the options tokens
// and private_tokens, and that of the file where they are 0. First values are normal around value with the deviation
// std.
func (m ONNX) Params(t method.ClientSpec) []method.Param {
	var out []method.Param
	for _, p := range m.file.meta.Parameters {
		param := method.Param{Name: p.Name, Shape: m.parameterShape(p.Name, t), Std: p.Std, Words: p.Words}
		if p.Owner == method.Private.String() {
			param.Owner = method.Private
		}
		if p.Value != 0 {
			client := -1
			if param.Owner == method.Private {
				client = t.Client
			}
			param.Init = func(seed uint64) *tensor.Tensor { return p.initial(seed, client, p.Name, param.Shape) }
		}
		out = append(out, param)
	}

	return out
}

// initial returns the first value of a tensor on a client, or with -1 on the server.
func (t Tensor) initial(seed uint64, client int, name string, shape []int) *tensor.Tensor {
	x := method.Draw(seed, client, name, shape, t.Std)
	for i := range x.Data {
		x.Data[i] += float32(t.Value)
	}
	return x
}

// length returns T of a parameter on a client.
func (m ONNX) length(p Parameter, t method.ClientSpec) int {
	n := m.Tokens
	if p.Owner == method.Private.String() {
		n = m.Private[max(0, t.Client)%len(m.Private)]
	}

	if n == 0 {
		n = p.Tokens
	}

	return n
}

func (m ONNX) parameterShape(name string, t method.ClientSpec) []int {
	p, _ := m.file.meta.parameter(name)
	return sizes(p.Shape, m.length(p, t), t)
}

// shape returns the shape of a tensor for a client; -1 is the batch.
func (m ONNX) shape(x Tensor, t method.ClientSpec) []int {
	if x.Like != "" {
		return m.parameterShape(x.Like, t)
	}
	return sizes(x.Shape, 0, t)
}

func sizes(shape []Size, tokens int, client method.ClientSpec) []int {
	out := make([]int, len(shape))
	for i, s := range shape {
		switch s.Sym {
		case "":
			out[i] = s.N
		case "T":
			out[i] = tokens
		case "w":
			out[i] = client.Width
		case "D":
			out[i] = client.Dim
		case "C":
			out[i] = client.Classes
		case "B":
			out[i] = -1
		}
	}

	return out
}

// Logits rebuilds the file's output "logits". An output of another shape than [B,C] fails the graph.
func (m ONNX) Logits(scope *method.Scope) graph.Node {
	n := m.bind(scope, ofScores, scope.Task()).output(port{name: "logits"})
	if scope.Graph().Err() == nil && (n.Rank() != 2 || n.Shape()[0] != graph.Sym("B") ||
		!n.Shape()[1].Is(scope.Task().Classes)) {
		return scope.Graph().Fail("%soutput logits has shape %v; it must be [B,C] with C %d", m.at(), n.Shape(),
			scope.Task().Classes)
	}
	return n
}

// Loss rebuilds the file's output "loss" on the given class scores, and names its summands as terms. An output that
// names a term and is no summand of the loss fails the graph.
func (m ONNX) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	b := m.bind(scope, ofLoss, scope.Task())
	scores, _ := m.file.graph.Output("logits")
	b.now[scores] = logits
	loss, _ := m.file.graph.Output("loss")
	named := map[string]bool{}
	n := b.summands(loss, named)
	for _, o := range m.file.graph.Outputs {
		if name, is := m.file.terms[source(o.Node)]; is && !named[name] && scope.Graph().Err() == nil {
			return b.fail("output %s is not a summand of loss; remove it, or add it to the loss", o.Name)
		}
	}

	return n
}

// summands returns a part of the loss, with its summands as named terms.
func (b *binder) summands(node graph.Node, named map[string]bool) graph.Node {
	if b.sums++; b.sums > maxSums {
		return b.fail("the loss has more than %d summands", maxSums)
	}

	op := source(node).Op()
	name, is := b.method.file.terms[source(node)]
	in := b.method.file.inputs[source(node)]
	switch {
	case is:
	case in.kind == "function":
		name = strings.ReplaceAll(in.name, "_", " ")
	case op.Kind == "Add" && op.Domain == graph.Standard:
		return b.summands(op.In[0], named).Add(b.summands(op.In[1], named))
	case len(b.method.file.terms) == 0:
		name = "loss"
	default:
		name = "rest"
	}

	named[name] = true
	v := b.value(node)
	if shape, ok := v.Shape().Ints(); ok && len(shape) > 0 && tensor.Size(shape) == 1 {
		v = v.Reshape() // some exporters keep axes of size 1
	}

	if b.scope.Graph().Err() == nil && (v.Rank() != 0 || v.DType() != graph.Float) {
		return b.fail("the term %q of the loss is %v%v; it must be a float32 scalar []", name, v.DType(), v.Shape())
	}

	return b.scope.Term(name, v)
}

// outputs lists the outputs of some kinds, one kind after the other.
func (m ONNX) outputs(kinds ...port) (out []port) {
	for _, kind := range kinds {
		for _, o := range m.file.outputs {
			if o.among(kind) {
				out = append(out, o)
			}
		}
	}

	return out
}

// has reports whether the file has an input.
func (m ONNX) has(input string) bool {
	return slices.ContainsFunc(m.file.graph.Inputs(), func(n graph.Node) bool { return n.Name() == input })
}

// Begin sets those of the inputs client/n, round, lr and step that the file reads. It gives states that the client does
// not have yet their initial values, and adds the file's noise to batches.
func (m ONNX) Begin(local *method.Local) error {
	for name, v := range map[string]float64{"client/n": float64(local.Data.Len()), "round": float64(local.Round),
		"lr":   local.LR,
		"step": 0} {
		if m.has(name) {
			local.Scalars[own(name)] = v
		}
	}

	for _, name := range slices.Sorted(maps.Keys(m.file.meta.State)) {
		if at := own(name); local.State[at] == nil {
			x := m.file.meta.State[name]
			local.State[at] = tensor.New(m.shape(x, local.Task)...)
			for i := range local.State[at].Data {
				local.State[at].Data[i] = float32(x.Value)
			}
		}
	}

	if len(m.file.meta.Noise) > 0 {
		local.Data = noisy{local.Data, m, local.Task}
	}

	return nil
}

// noisy adds noise to batches.
type noisy struct {
	method.Data
	method ONNX
	task   method.ClientSpec
}

func (d noisy) Batch(rows []int, random *rand.Rand, also ...string) (tensor.Map, error) {
	out, err := d.Data.Batch(rows, random, also...)
	if err != nil {
		return nil, err
	}

	out = maps.Clone(out)
	noise := d.method.file.meta.Noise
	for _, name := range slices.Sorted(maps.Keys(noise)) {
		shape := d.method.shape(Tensor{Shape: noise[name].Shape}, d.task)
		if len(shape) > 0 && shape[0] < 0 {
			shape[0] = len(rows)
		} else {
			shape = append([]int{1}, shape...)
		}

		x, draw := tensor.New(shape...), random.NormFloat64
		if noise[name].Distribution == "uniform" {
			draw = random.Float64
		}

		for i := range x.Data {
			x.Data[i] = float32(draw())
		}

		out[drawn(name).String()] = x
	}

	return out, nil
}

// AdjustGradients changes no gradient. It sets the input step to the number of the next step.
func (m ONNX) AdjustGradients(local *method.Local, _ tensor.Map) error {
	if m.has("step") {
		local.Scalars[own("step")] = float64(local.Steps + 1)
	}
	return nil
}

// Extras declares the tensors up/NAME of the file, under the names file/NAME; Finish computes them.
func (m ONNX) Extras(t method.ClientSpec) []method.Extra {
	var out []method.Extra
	for _, name := range slices.Sorted(maps.Keys(m.file.meta.Up)) {
		out = append(out, method.Extra{Name: own(name), Shape: m.shape(m.file.meta.Up[name], t)})
	}
	return out
}

// Finish computes the client's next state, and what it uploads beside the shared parameters.
func (m ONNX) Finish(local *method.Local, up *method.Upload) error {
	got, err := m.compute(ofFinish, local.Task, m.outputs(nextState, uploaded), local.Eval)
	for out, t := range got {
		if out.among(uploaded) {
			up.Extra[own(out.name)] = t
		} else {
			local.State[own(out.name)] = t
		}
	}

	return err
}

// compute returns some outputs, which eval computes as one vector.
func (m ONNX) compute(r *role, client method.ClientSpec, outputs []port, eval func(func(*method.Scope) graph.Node) (
	*tensor.Tensor, error)) (map[port]*tensor.Tensor, error) {
	if outputs == nil {
		return nil, nil
	}

	all, err := eval(func(scope *method.Scope) graph.Node { return m.vector(scope, r, client, outputs) })
	if err != nil {
		return nil, err
	}

	out, at := map[port]*tensor.Tensor{}, 0
	for _, o := range outputs {
		shape := m.declared(o, client)
		n := tensor.Size(shape)
		if at += n; at <= len(all.Data) {
			out[o] = tensor.Of(slices.Clone(all.Data[at-n:at]), shape...)
		}
	}

	if at != len(all.Data) {
		return nil, fmt.Errorf("%soutputs have %d elements, not %d", m.at(), len(all.Data), at)
	}

	return out, nil
}

// vector joins outputs of declared shapes.
func (m ONNX) vector(scope *method.Scope, r *role, t method.ClientSpec, outputs []port) graph.Node {
	b := m.bind(scope, r, t)
	parts := make([]graph.Node, len(outputs))
	for i, out := range outputs {
		n, shape := b.output(out), m.declared(out, t)
		if got, ok := n.Shape().Ints(); scope.Graph().Err() == nil && (!ok || !slices.Equal(got, shape) ||
			n.DType() != graph.Float) {
			return b.fail("output %s is %v%v; it must be float32 with shape %v", out, n.DType(), n.Shape(), shape)
		}
		if scope.Graph().Err() != nil {
			return n
		}
		parts[i] = n.Reshape(-1)
	}

	return graph.Concat(0, parts...)
}

// declared returns the shape of an output at the end of a turn or of a round.
func (m ONNX) declared(out port, t method.ClientSpec) []int {
	if out.among(merged) {
		return m.parameterShape(out.name, t)
	}
	return m.shape(m.file.meta.tensors(out)[out.name], t)
}

// Start sets what the server sends in round 0.
func (m ONNX) Start(global *method.Global) error {
	for name, x := range m.file.meta.Down {
		global.Broadcast[own(name)] = x.initial(global.Seed, -1, name, m.shape(x, m.task(global)))
	}
	return nil
}

// task has the sizes of the server's tensors.
func (m ONNX) task(global *method.Global) method.ClientSpec {
	t := global.Task
	t.Width, t.Classes, t.Clients = global.Width, global.Classes, global.Clients
	return t
}

// Merge averages the shared parameters, and computes those of outputs merged/NAME and what outputs down/NAME send.
func (m ONNX) Merge(global *method.Global, ups []method.Upload) error {
	if len(ups) == 0 || !m.merges() {
		return m.FedAvg.Merge(global, ups)
	}

	client := m.task(global)
	rows := tensor.Map{"round": tensor.Of([]float32{float32(global.Round)}, 1),
		"lr":      tensor.Of([]float32{float32(global.LR)}, 1),
		"weights": tensor.New(len(ups))}
	for i, u := range ups {
		rows["weights"].Data[i] = float32(u.N)
	}

	for name := range global.Shared {
		rows["received/"+name] = global.Shared[name]
		rows["uploads/"+name] = tensor.Stack(convert.Slice(ups, func(u method.Upload) *tensor.Tensor {
			return u.Shared[name]
		}))
	}

	for name, x := range m.file.meta.Up {
		all := make([]*tensor.Tensor, len(ups))
		for i, u := range ups {
			var err error
			if all[i], err = aggregate.Extra(u, own(name), m.shape(x, client)...); err != nil {
				return err
			}
		}
		rows["uploads/up/"+name] = tensor.Stack(all)
	}

	maps.Copy(rows, global.Broadcast)
	outputs := m.outputs(merged, nextDown)
	got, err := m.compute(ofServer, client, outputs, func(value func(*method.Scope) graph.Node) (*tensor.Tensor,
		error) {
		return global.Compute(rows, value)
	})

	if err != nil {
		return err
	}

	for _, out := range outputs {
		if i := got[out].NonFinite(); i >= 0 {
			return fmt.Errorf("%soutput %s holds %v at element %d", m.at(), out, got[out].Data[i], i)
		}
	}

	if err := m.FedAvg.Merge(global, ups); err != nil {
		return err
	}

	for out, x := range got {
		if out.among(nextDown) {
			global.Broadcast[own(out.name)] = x
		} else {
			global.Shared[out.name] = x
		}
	}

	return nil
}
