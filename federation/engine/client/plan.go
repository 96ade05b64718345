package client

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// plan says how a value or a step is computed: by one graph, or by two. The first of two is the prefix. It reads no
// rows of data, and its values are cached, so that it runs once for equal inputs. The other graph, the program itself,
// has the values of the prefix as inputs.
type plan struct {
	*program
	prefix *program    // nil for none
	cache  *valueCache // of the values of the prefix
	images *imageParts // nil for none
	// initial is the plan of a step for shared parameters as the server sent them; nil for none. All clients of a round
	// begin there, so they share its prefix, the forward pass of the text tower. Whether a turn uses it depends on the
	// client and the instruction only: a client alone on a machine runs the very same two graphs.
	initial *plan
	maxRows int  // in one run, where memory bounds them; else 0
	byRow   bool // the value has a row for each example
	// notBatchable is true where several clients in one run are no faster, see spec.NotBatchable.
	notBatchable bool
	constants    tensor.Map // of method.Scope.Note, for traces
	// losses are what a step computes: the loss that is trained and auxiliary ones, or terms of the loss. learned are
	// the inputs that the first one has gradients of.
	losses  []lossName
	learned []method.Input
}

// execute computes a plan for some clients in one run, or for one client on as many rows of its batch at a time as
// memory allows. The outputs of several runs are averaged, each weighted by its rows: this is the output for the whole
// batch where a loss is a mean over rows or depends on none (see spec.MeanOverRows). execute leaves the values of host
// functions in ins.
func (p *plan) execute(ctx context.Context, ins ...inputs) ([]tensor.Map, error) {
	var err error
	for i := range ins {
		if ins[i].prefix, err = p.prefixValues(ctx, ins[i]); err != nil {
			return nil, err
		}
		if err := ins[i].computeHosts(p.program); err != nil {
			return nil, err
		}
	}

	if p.images != nil {
		ins = slices.Clone(ins)
		for i := range ins {
			var err error
			if ins[i].batch, err = p.images.add(ctx, ins[i]); err != nil {
				return nil, err
			}
		}
	}

	rows := ins[0].rows()
	size := spec.MicrobatchSize(rows, p.maxRows)
	if size == rows || len(ins) > 1 {
		return runTogether(ctx, p.program, (*ort.Session).RunWith, ins...)
	}

	var mean tensor.Map
	for index := range slices.Chunk(tensor.Indices(rows), size) {
		part := ins[0]
		part.batch = rowsOf(part.batch, rows, index)
		out, err := runTogether(ctx, p.program, (*ort.Session).RunWith, part)
		if err != nil {
			return nil, err
		}
		weight := float64(len(index)) / float64(rows)
		if mean == nil {
			mean = out[0].Scale(weight)
		} else {
			mean.Axpy(weight, out[0])
		}
	}

	return []tensor.Map{mean}, nil
}

// rowsOf returns some rows of a batch; a tensor with another number of rows stays whole.
func rowsOf(batch tensor.Map, rows int, index []int) tensor.Map {
	out := tensor.Map{}
	for name, t := range batch {
		if len(t.Shape) > 0 && t.Shape[0] == rows {
			t = t.Rows(index)
		}
		out[name] = t
	}

	return out
}

// prefixValues returns the values of the prefix for one client, from the cache or computed.
func (p *plan) prefixValues(ctx context.Context, in inputs) (ort.Values, error) {
	if p.prefix == nil {
		return nil, nil
	}

	key, err := p.prefix.digest(in)
	if err != nil {
		return nil, err
	}

	return cached(p.cache, key, func() (ort.Values, error) {
		in.hosts, in.hostValues = nil, nil
		if err := in.computeHosts(p.prefix); err != nil {
			return nil, err
		}
		out, err := p.runPrefix(ctx, in)
		if err != nil {
			return nil, err
		}
		return out[0], nil
	})
}

// runPrefix computes the prefix for some clients in one run; the values of its host functions are in ins.
func (p *plan) runPrefix(ctx context.Context, ins ...inputs) ([]ort.Values, error) {
	return runTogether(ctx, p.prefix, (*ort.Session).RunKeep, ins...)
}

// withHosts returns the plan with the host functions of a scope.
func (p *plan) withHosts(scope *method.Scope) *plan {
	if p == nil {
		return nil
	}
	own := *p
	own.program, own.prefix, own.initial = p.program.withHosts(scope), p.prefix.withHosts(scope),
		p.initial.withHosts(scope)
	own.constants = scope.Built().Constants
	return &own
}

func (p *plan) programs() []*program {
	if p.prefix == nil {
		return []*program{p.program}
	}
	return []*program{p.program, p.prefix}
}

// reads reports whether the plan uses current values of some of the parameters.
func (p *plan) reads(params tensor.Map) bool {
	return slices.ContainsFunc(p.programs(), func(q *program) bool {
		return slices.ContainsFunc(q.reads(), func(in method.Input) bool {
			return in.Kind == method.ParamInput && params[in.Name] != nil
		})
	})
}

// rowsPerRun is how many rows with patches or pixels are scored at a time.
const rowsPerRun = 64

// rowsAtOnce is how many rows of a data set are scored at a time; 0 is all.
func (p *plan) rowsAtOnce() int {
	switch {
	case len(p.largeInputs) == 0:
		return p.maxRows
	case p.maxRows == 0:
		return rowsPerRun
	}
	return min(rowsPerRun, p.maxRows)
}

// Several clients in one run: the graph contains a program's graph once per client, with inputs and outputs named by
// ofClient, and the prompts of all clients go through the text tower in one pass. The gradients of the sum of the
// losses are those of each loss, since no client's parameters enter another's loss.

// runTogether runs a program's graph for some clients and returns the outputs of each.
func runTogether[T any, M ~map[string]T](ctx context.Context, program *program, run func(*ort.Session, context.Context,
	tensor.Map, ort.Values) (M, error), ins ...inputs) ([]M, error) {
	feeds := make([]feed, len(ins))
	for i, in := range ins {
		var err error
		if feeds[i], err = in.feed(program); err != nil {
			return nil, err
		}
	}

	session, err := program.session(len(ins))
	if err != nil {
		return nil, err
	}

	if len(feeds) == 1 {
		out, err := run(session, ctx, feeds[0].now, feeds[0].held)
		return []M{out}, err
	}

	all, outs := feed{tensor.Map{}, ort.Values{}}, make([]M, len(feeds))
	for k, own := range feeds {
		for _, in := range program.inputs {
			name := in.String()
			if !program.common(in) {
				name = ofClient(k, len(feeds), name)
			}
			if v := own.held[in.String()]; v != nil {
				all.held[name] = v
			} else {
				all.now[name] = own.now[in.String()]
			}
		}
	}

	got, err := run(session, ctx, all.now, all.held)
	for k := range outs {
		outs[k] = M{}
		for _, name := range program.outputs {
			outs[k][name] = got[ofClient(k, len(feeds), name)]
		}
	}

	return outs, err
}

// ofClient returns the name that an input or an output of client k has in a graph of n clients.
func ofClient(k, n int, name string) string {
	if n == 1 {
		return name
	}
	return strconv.Itoa(k) + "/" + name
}

// copies returns outputs for each of n clients, one client after the other; for one client, the outputs themselves.
func copies(scope *method.Scope, outputs []graph.Output, n int) []graph.Output {
	if n == 1 {
		return outputs
	}

	common := commonInputs(scope, method.ReceivedInput)
	var out []graph.Output
	for k := range n {
		nodes := graph.Transform(nodesOf(outputs), func(op *graph.Op, _ []graph.Node) []graph.Node {
			in := op.Out[0]
			if !op.IsInput() || common(method.InputOf(in)) {
				return nil
			}
			shape := slices.Clone(in.Shape())
			for i, d := range shape {
				if !d.Static() {
					shape[i].Sym = ofClient(k, n, d.Sym)
				}
			}
			return []graph.Node{scope.Graph().Input(ofClient(k, n, in.Name()), in.DType(), shape)}
		})

		for i, node := range nodes {
			out = append(out, graph.Output{Name: ofClient(k, n, outputs[i].Name), Node: node})
		}
	}

	return out
}

// commonInputs returns a test for inputs that are the same for all clients of a round: shared parameters of some kinds,
// such as ReceivedInput.
func commonInputs(scope *method.Scope, kinds ...method.InputKind) func(method.Input) bool {
	shared := method.SharedNames(scope.Params())
	return func(in method.Input) bool { return slices.Contains(kinds, in.Kind) && slices.Contains(shared, in.Name) }
}

func nodesOf(outputs []graph.Output) []graph.Node {
	return convert.Slice(outputs, func(o graph.Output) graph.Node { return o.Node })
}

type program struct {
	number int64 // that no other graph of this process has
	// session compiles the graph for some clients in one run, once for each number of them.
	session func(clients int) (*ort.Session, error)
	// several builds the outputs for some clients in one run, each client's under ofClient; nil where each goes alone.
	several     func(clients int) ([]graph.Output, error)
	inputs      []method.Input
	common      func(method.Input) bool // see commonInputs
	hosts       []method.HostCall
	outputs     []string // names
	largeInputs []string // of spec.LargeInputs, which a batch must hold beside image and label
	bytes       int      // of all outputs, as far as their shapes are known
}

var lastProgram atomic.Int64

// FixedInput is the kind of inputs that plan.prefix computes.
const FixedInput method.InputKind = "fixed"

// valueOutput is the name of the output of a plan without losses.
const valueOutput = "value"

// lossName names a loss of a step. The zero value is the loss that is trained.
type lossName struct {
	kind lossKind
	name string
}

// lossNode is a loss in a graph.
type lossNode struct {
	lossName
	node graph.Node
}

type lossKind string

// Kinds of losses beside the one that is trained.
const (
	auxiliaryLoss lossKind = "aux"  // of method.Scope.AuxLoss
	termLoss      lossKind = "term" // of method.Scope.Term
)

// output returns the name of an output of the loss.
func (l lossName) output(what string) string {
	if l.kind == "" {
		return what
	}
	return string(l.kind) + "/" + l.name + "/" + what
}

// value returns the name of the output with the value of the loss, and gradient that of its gradient with respect to an
// input.
func (l lossName) value() string                   { return l.output("loss") }
func (l lossName) gradient(in method.Input) string { return l.output("grad/" + in.String()) }

// lossesOf returns losses of a kind.
func lossesOf(kind lossKind, terms []method.Term) []lossNode {
	return convert.Slice(terms, func(t method.Term) lossNode { return lossNode{lossName{kind, t.Name}, t.Node} })
}

// valuesOf returns losses without their gradients.
func valuesOf(losses []lossNode) []graph.Output {
	return convert.Slice(losses, func(l lossNode) graph.Output { return graph.Output{Name: l.value(), Node: l.node} })
}

// reads lists the inputs of the graph and of its host functions.
func (p *program) reads() []method.Input { return method.WithArguments(slices.Clip(p.inputs), p.hosts) }

func (p *program) readsRows() bool { return slices.ContainsFunc(p.reads(), spec.IsRow) }

// withHosts returns the program with the host functions of a scope.
func (p *program) withHosts(scope *method.Scope) *program {
	if p == nil {
		return nil
	}
	own := *p
	own.hosts = p.hostsOf(scope)
	return &own
}

// hostsOf lists the host functions of a scope that the program reads.
func (p *program) hostsOf(scope *method.Scope) []method.HostCall {
	return slices.DeleteFunc(slices.Clone(scope.Built().Hosts), func(h method.HostCall) bool {
		return !slices.Contains(p.inputs, h.Input())
	})
}
