package graph

import (
	"fmt"

	"promptfed/runtime/onnx"
)

// scope resolves the names in a list of nodes, of a model or of a branch.
type scope struct {
	names map[string]Node
	outer *scope                          // the scope around a branch; nil for a model
	known map[string]*onnx.ValueInfoProto // types and shapes in the file
	label string                          // prefix of the names of operators
	depth int
}

const (
	maxDepth    = 64      // nested branches
	maxExpanded = 1 << 17 // operators added for branches
	maxValues   = 1 << 20 // outputs of operators of a graph from a file, or into which a file is inlined
)

func (s *scope) declare(name string, n Node) error {
	if name == "" {
		return fmt.Errorf("a value without a name")
	}

	if _, twice := s.names[name]; twice {
		return fmt.Errorf("value %q is made twice", name)
	}

	s.names[name] = n
	return nil
}

func (s *scope) get(name string) (Node, bool) {
	for ; s != nil; s = s.outer {
		if n, ok := s.names[name]; ok {
			return n, true
		}
	}
	return Node{}, false
}

// room returns an error if a graph is too large for more values of a file.
func (g *Graph) room(more int) error {
	if g.values+more > maxValues {
		return fmt.Errorf("the graph has more than %d values; it repeats a tower with a fixed batch size for every "+
			"batch: export the tower with a dynamic batch size", maxValues)
	}
	return nil
}

// alias declares another name of an existing value.
func (f *File) alias(name string, n Node, s *scope) error {
	if n.value.name == "" && n.Graph() == f.Graph {
		n.value.name = name
	}
	if vi := s.known[name]; vi != nil && n.value.op.data == nil && !n.value.op.IsInput() {
		adopt(n.value, vi)
	}
	return s.declare(name, n)
}

// branch replaces an If with a known condition by the selected branch; ok is false if the condition is not known.
func (f *File) branch(node *onnx.NodeProto, in []Node, outer *scope) (ok bool, err error) {
	if node.OpType != "If" || len(in) != 1 || !in[0].OK() || len(in[0].Ints()) != 1 || !in[0].Ints()[0].Static() {
		return false, nil
	}

	want := "else_branch"
	if in[0].Ints()[0].N != 0 {
		want = "then_branch"
	}

	branch := onnx.Attribute(node, want).GetG()
	if branch == nil {
		return false, fmt.Errorf("it has no %s", want)
	}

	inner := &scope{names: map[string]Node{}, outer: outer, label: outer.label, depth: outer.depth + 1}
	if node.Name != "" {
		inner.label += node.Name + "/"
	}

	if len(node.Output) > len(branch.Output) {
		return false, fmt.Errorf("its %s has %d outputs, not %d", want, len(branch.Output), len(node.Output))
	}

	if err := f.within(branch, inner); err != nil {
		return false, err
	}

	for i, name := range node.Output {
		if name == "" {
			continue
		}
		n, ok := inner.get(branch.Output[i].Name)
		if !ok || !n.OK() {
			return false, fmt.Errorf("output %q of its %s is made by no node", branch.Output[i].Name, want)
		}
		if err := f.alias(name, n, outer); err != nil {
			return false, err
		}
	}

	return true, nil
}

// within adds the operators of a graph inside another one.
func (f *File) within(graphProto *onnx.GraphProto, scope *scope) error {
	if f.expanded += len(graphProto.Node); f.expanded > maxExpanded {
		return fmt.Errorf("branches make more than %d operators", maxExpanded)
	}

	if scope.depth > maxDepth {
		return fmt.Errorf("branches are nested more than %d deep", maxDepth)
	}

	for _, t := range graphProto.Initializer {
		if err := scope.declare(t.Name, f.Graph.imported(t, t.Name)); err != nil {
			return err
		}
	}

	for _, p := range graphProto.Node {
		if err := f.node(p, scope); err != nil {
			return err
		}
	}

	return nil
}
