package onnx

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"promptfed/runtime/convert"
)

const (
	maxDepth    = 64      // nested function calls and graphs
	maxInlined  = 1 << 17 // nodes from function bodies
	maxRepeated = 1 << 28 // bytes of those nodes
	maxPrefix   = 256     // bytes of the prefix of names inside a function
)

// maxGraphs bounds nested graphs: ONNX Runtime infers the types of each level twice as often as of the level around it.
const maxGraphs = 8

// Opset is the version of the standard operator set of written models.
const Opset = 18

// Upgrade rewrites a model in place to operator set Opset, or to its own if that is later: calls of its functions
// become the nodes of the bodies, and nodes take the form of the later set, also in subgraphs. Functions without a body
// stay calls. Training graphs are removed, because inference does not need them.
func Upgrade(model *ModelProto) error {
	version := Version(model.OpsetImport)
	if version < 7 {
		return fmt.Errorf("operator set %d is too old; export the model with operator set 13 or newer", version)
	}

	functions := functionsOf(model)
	if err := checkExpansion(model, functions, maxDepth); err != nil {
		return err
	}

	upgrader := &upgrader{model: model, functions: functions, taken: map[string]bool{"": true},
		again: map[string]int{}, ranks: map[string]int{}, done: map[*GraphProto]bool{}}
	for x := range Messages(model) {
		switch message := x.(type) {
		case *ValueInfoProto:
			upgrader.taken[message.Name] = true
			if s := message.GetType().GetTensorType().GetShape(); s != nil {
				if r, twice := upgrader.ranks[message.Name]; twice && r != len(s.Dim) { // two graphs use the name
					upgrader.ranks[message.Name] = -1
				} else {
					upgrader.ranks[message.Name] = len(s.Dim)
				}
			}
		case *TensorProto:
			upgrader.taken[message.Name] = true
		case *NodeProto:
			for _, name := range slices.Concat(message.Input, message.Output) {
				upgrader.taken[name] = true
			}
		}
	}

	model.TrainingInfo = nil
	if err := upgrader.graph(model.Graph, &frame{version: version}); err != nil {
		return err
	}

	model.Functions = slices.DeleteFunc(model.Functions, func(f *FunctionProto) bool { return len(f.Node) > 0 })
	for _, o := range model.OpsetImport {
		if Standard(o.Domain) {
			o.Version = max(o.Version, Opset)
		}
	}

	model.IrVersion = max(model.IrVersion, 8)
	return nil
}

type upgrader struct {
	model     *ModelProto
	functions map[string]*FunctionProto
	taken     map[string]bool // names of values, anywhere in the model
	again     map[string]int  // number of requests for a name that is taken
	ranks     map[string]int  // of values, from the file
	done      map[*GraphProto]bool
	inlined   int // nodes from function bodies
}

// frame resolves names and attributes in a list of nodes: of a graph of the model, or of one call of a function.
type frame struct {
	version int64
	prefix  string // of names inside, and of the names of nodes
	// names inside a function, by their names in the body; nil for a graph of the model
	values map[string]string
	given  map[string]*AttributeProto // by the caller
}

// imports adds operator sets to those of the model, in the later version if the model has the domain.
func (u *upgrader) imports(list []*OperatorSetIdProto) {
	for _, o := range list {
		i := slices.IndexFunc(u.model.OpsetImport, func(x *OperatorSetIdProto) bool {
			return x.Domain == o.Domain || Standard(x.Domain) && Standard(o.Domain)
		})
		if i < 0 {
			u.model.OpsetImport = append(u.model.OpsetImport, o)
		} else if Standard(o.Domain) {
			u.model.OpsetImport[i].Version = max(u.model.OpsetImport[i].Version, o.Version)
		}
	}
}

func (u *upgrader) fresh(name string) string {
	for base := name; u.taken[name]; {
		u.again[base]++
		name = base + "." + strconv.Itoa(u.again[base])
	}
	u.taken[name] = true
	return name
}

func (u *upgrader) name(f *frame, name string) string {
	if f.values == nil || name == "" {
		return name
	}

	to, ok := f.values[name]
	if !ok {
		to = u.fresh(f.prefix + name)
		f.values[name] = to
	}

	return to
}

func (u *upgrader) names(f *frame, list []string) []string {
	if f.values == nil {
		return list
	}
	return convert.Slice(list, func(name string) string { return u.name(f, name) })
}

func (u *upgrader) graph(g *GraphProto, f *frame) error {
	nodes, err := u.nodes(nil, g.Node, f)
	g.Node = nodes
	return err
}

func (u *upgrader) nodes(to, list []*NodeProto, f *frame) ([]*NodeProto, error) {
	for _, n := range list {
		name := n.Name
		if name != "" {
			name = f.prefix + name
		}
		var err error
		if to, err = u.node(to, n, f); err != nil {
			if inner := (&NodeError{}); errors.As(err, &inner) {
				return nil, err // of a node in a subgraph
			}
			return nil, &NodeError{Label(n.OpType, name), err}
		}
	}

	return to, nil
}

// Kind returns the kind of an operator, prefixed by the domain unless that is ONNX's own.
func Kind(domain, kind string) string {
	if Standard(domain) {
		return kind
	}
	return domain + "." + kind
}

// Attribute returns the attribute of a node with a name, nil if it has none.
func Attribute(node *NodeProto, name string) *AttributeProto {
	for _, a := range node.Attribute {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Label returns the kind of an operator and the name of its node, if it has one.
func Label(kind, name string) string {
	if name == "" {
		return kind
	}
	return kind + " (node " + name + ")"
}

// NodeError is an error of one node of a file.
type NodeError struct {
	Label string
	Err   error
}

func (e *NodeError) Error() string { return e.Label + ": " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

func (u *upgrader) node(to []*NodeProto, node *NodeProto, frame *frame) ([]*NodeProto, error) {
	if frame.values != nil {
		u.inlined++
		body := node
		node = ShallowCopy(body)
		if node.Name != "" {
			node.Name = frame.prefix + node.Name
		}
		node.Input, node.Output = u.names(frame, body.Input), u.names(frame, body.Output)
		node.Attribute = u.attributes(body.Attribute, frame)
	}

	for _, g := range Subgraphs(node) {
		if err := u.inner(g, frame); err != nil {
			return nil, err
		}
	}

	if fn := u.functions[callKey(node.Domain, node.OpType, node.Overload)]; fn != nil && len(fn.Node) > 0 {
		return u.call(to, node, fn, frame)
	}

	return u.upgrade(to, node, frame.version)
}

// attributes returns the attributes of a node in a function. References get the values of the caller's attributes, or
// are removed if the caller omits them. Graphs are copied, because the names of each call differ.
func (u *upgrader) attributes(list []*AttributeProto, frame *frame) []*AttributeProto {
	var out []*AttributeProto
	for _, attribute := range list {
		if attribute.RefAttrName != "" {
			value, ok := frame.given[attribute.RefAttrName]
			if !ok {
				continue
			}
			name := attribute.Name
			attribute = ShallowCopy(value) // its graphs, if any, belong to the caller
			attribute.Name, attribute.RefAttrName = name, ""
		} else if attribute.G != nil || len(attribute.Graphs) > 0 {
			attribute = ShallowCopy(attribute)
			if attribute.G != nil {
				attribute.G = u.copied(attribute.G, frame)
			}
			attribute.Graphs = slices.Clone(attribute.Graphs)
			for i, g := range attribute.Graphs {
				attribute.Graphs[i] = u.copied(g, frame)
			}
		}

		out = append(out, attribute)
	}

	return out
}

// copied returns a graph inside a function with the names of one call. Its nodes are still those of the body.
func (u *upgrader) copied(graph *GraphProto, frame *frame) *GraphProto {
	graph = ShallowCopy(graph)
	for _, list := range []*[]*ValueInfoProto{&graph.Input, &graph.Output, &graph.ValueInfo} {
		*list = slices.Clone(*list)
		for i, v := range *list {
			(*list)[i] = ShallowCopy(v)
			(*list)[i].Name = u.name(frame, v.Name)
		}
	}

	graph.Initializer = slices.Clone(graph.Initializer)
	for i, t := range graph.Initializer {
		graph.Initializer[i] = ShallowCopy(t)
		graph.Initializer[i].Name = u.name(frame, t.Name)
	}

	return graph
}

// inner upgrades a subgraph of a node. Nodes of a function's body get the names of the call.
func (u *upgrader) inner(g *GraphProto, f *frame) error {
	if u.done[g] { // a graph of the function's caller
		return nil
	}
	u.done[g] = true
	return u.graph(g, f)
}

func (u *upgrader) call(to []*NodeProto, node *NodeProto, fn *FunctionProto, outer *frame) ([]*NodeProto, error) {
	frame := &frame{version: Version(fn.OpsetImport), values: map[string]string{},
		given: map[string]*AttributeProto{}}
	if frame.version == 0 {
		frame.version = outer.version
	}

	u.imports(fn.OpsetImport)
	if node.Name != "" { // it has the prefix of the outer call
		frame.prefix = node.Name + "/"
	} else {
		frame.prefix = outer.prefix
	}

	if len(frame.prefix) > maxPrefix {
		frame.prefix = "call" + strconv.Itoa(u.inlined) + "/"
	}

	if len(node.Input) > len(fn.Input) || len(node.Output) > len(fn.Output) {
		return nil, fmt.Errorf("%d inputs and %d outputs for a function of %d and %d", len(node.Input),
			len(node.Output), len(fn.Input), len(fn.Output))
	}

	for i, name := range fn.Input {
		if _, twice := frame.values[name]; twice || name == "" {
			return nil, fmt.Errorf("input %q of the function is made twice, or has no name", name)
		}
		frame.values[name] = ""
		if i < len(node.Input) {
			frame.values[name] = node.Input[i]
		}
	}

	made := map[string]bool{}
	for _, q := range fn.Node {
		for _, name := range q.Output {
			made[name] = true
		}
	}

	var passed []*NodeProto // outputs that no node computes under their own name
	for i, name := range node.Output {
		inside := fn.Output[i]
		value, known := frame.values[inside]
		switch {
		case name == "":
		case known && value != "":
			passed = append(passed, &NodeProto{OpType: "Identity", Input: []string{value}, Output: []string{name}})
		case known || !made[inside]:
			return nil, fmt.Errorf("output %q of the function is made by none of its nodes", inside)
		default:
			frame.values[inside] = name
		}
	}

	for _, a := range fn.AttributeProto {
		if frame.given[a.Name] = a; a.G != nil || len(a.Graphs) > 0 {
			return nil, fmt.Errorf("attribute %s of the function is a graph by default, which is not supported", a.Name)
		}
	}

	for _, a := range node.Attribute {
		frame.given[a.Name] = a
	}

	to, err := u.nodes(to, fn.Node, frame)
	return append(to, passed...), err
}
