package graph

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// scope is where the names of a list of nodes are looked up: those of a model, of the body of a function, or of a
// branch.
type scope struct {
	names   map[string]Node
	outer   *scope                          // of a branch, which sees the names around it; nil otherwise
	known   map[string]*onnx.ValueInfoProto // what the file says of values
	version int64                           // of the standard operator set
	label   string                          // goes before the names of operators
	depth   int
}

const (
	maxDepth    = 64      // functions and branches inside one another
	maxExpanded = 1 << 17 // operators that function bodies and branches may make, beyond those that the file lists
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

// standardVersion is the version of ONNX's own operators among a list.
func standardVersion(list []*onnx.OperatorSetIdProto) int64 {
	version := int64(0)
	for _, o := range list {
		if o.Domain == "" || o.Domain == "ai.onnx" {
			version = o.Version
		}
	}
	return version
}

// expand counts the nodes that a function body or branch adds.
func (f *File) expand(nodes int, s *scope) error {
	if f.expanded += nodes; f.expanded > maxExpanded {
		return fmt.Errorf("functions and branches make more than %d operators", maxExpanded)
	}
	if s.depth > maxDepth {
		return fmt.Errorf("functions and branches are nested more than %d deep, or a function calls itself", maxDepth)
	}
	return nil
}

func functionKey(domain, name, overload string) string { return domain + ":" + name + ":" + overload }

// call puts the body of a function of the file in place of a node that calls it. A function without a body stays a
// node.
func (f *File) call(p *onnx.NodeProto, fn *onnx.FunctionProto, in []Node, outer *scope) error {
	s := &scope{names: map[string]Node{}, version: standardVersion(fn.OpsetImport), label: outer.label,
		depth: outer.depth + 1}
	if p.Name != "" {
		s.label += p.Name + "/"
	}
	if err := f.expand(len(fn.Node), s); err != nil {
		return err
	}
	if s.version == 0 {
		s.version = outer.version
	}
	if len(in) > len(fn.Input) || len(p.Output) > len(fn.Output) {
		return fmt.Errorf("%d inputs and %d outputs for a function of %d and %d", len(in), len(p.Output), len(fn.Input),
			len(fn.Output))
	}
	for i, name := range fn.Input {
		n := Node{}
		if i < len(in) {
			n = in[i]
		}
		if err := s.declare(name, n); err != nil {
			return err
		}
	}
	given := map[string]*onnx.AttributeProto{}
	for _, a := range append(slices.Clone(fn.AttributeProto), p.Attribute...) {
		given[a.Name] = a
	}
	for _, q := range fn.Node {
		q = proto.Clone(q).(*onnx.NodeProto)
		bind(q, given)
		if err := f.node(q, s); err != nil {
			return err
		}
	}
	for i, name := range p.Output {
		if name == "" {
			continue
		}
		n, ok := s.get(fn.Output[i])
		if !ok || !n.OK() {
			return fmt.Errorf("output %q of the function is made by none of its nodes", fn.Output[i])
		}
		if err := f.alias(name, n, outer); err != nil {
			return err
		}
	}
	return nil
}

// bind replaces attributes that refer to those of the function's caller; one that the caller leaves out vanishes.
func bind(p *onnx.NodeProto, given map[string]*onnx.AttributeProto) {
	var kept []*onnx.AttributeProto
	for _, a := range p.Attribute {
		if a.RefAttrName != "" {
			value, ok := given[a.RefAttrName]
			if !ok {
				continue
			}
			name := a.Name
			a = proto.Clone(value).(*onnx.AttributeProto)
			a.Name, a.RefAttrName = name, ""
		}
		for _, g := range append(slices.Clone(a.Graphs), a.G) {
			for _, q := range g.GetNode() {
				bind(q, given)
			}
		}
		kept = append(kept, a)
	}
	p.Attribute = kept
}

// alias gives a value that exists already one more name.
func (f *File) alias(name string, n Node, s *scope) error {
	if n.v.name == "" && n.Graph() == f.Graph {
		n.v.name = name
	}
	if vi := s.known[name]; vi != nil && n.v.op.data == nil && !n.v.op.IsInput() {
		adopt(n.v, vi)
	}
	return s.declare(name, n)
}

// branch puts the branch that is taken in place of an If whose condition is known; ok is false where it is not.
func (f *File) branch(p *onnx.NodeProto, in []Node, outer *scope) (ok bool, err error) {
	if p.OpType != "If" || len(in) != 1 || !in[0].OK() || len(in[0].Ints()) != 1 || !in[0].Ints()[0].Static() {
		return false, nil
	}
	want := "else_branch"
	if in[0].Ints()[0].N != 0 {
		want = "then_branch"
	}
	i := slices.IndexFunc(p.Attribute, func(a *onnx.AttributeProto) bool { return a.Name == want })
	if i < 0 || p.Attribute[i].G == nil {
		return false, fmt.Errorf("it has no %s", want)
	}
	g := p.Attribute[i].G
	s := &scope{names: map[string]Node{}, outer: outer, version: outer.version, label: outer.label,
		depth: outer.depth + 1}
	if p.Name != "" {
		s.label += p.Name + "/"
	}
	if err := f.expand(len(g.Node), s); err != nil {
		return false, err
	}
	if len(p.Output) > len(g.Output) {
		return false, fmt.Errorf("its %s has %d outputs, not %d", want, len(g.Output), len(p.Output))
	}
	for _, t := range g.Initializer {
		if err := checkTensor(t); err != nil {
			return false, err
		}
		if err := s.declare(t.Name, f.Graph.imported(t, t.Name)); err != nil {
			return false, err
		}
	}
	for _, q := range g.Node {
		if err := f.node(proto.Clone(q).(*onnx.NodeProto), s); err != nil {
			return false, err
		}
	}
	for i, name := range p.Output {
		if name == "" {
			continue
		}
		n, ok := s.get(g.Output[i].Name)
		if !ok || !n.OK() {
			return false, fmt.Errorf("output %q of its %s is made by no node", g.Output[i].Name, want)
		}
		if err := f.alias(name, n, outer); err != nil {
			return false, err
		}
	}
	return true, nil
}
