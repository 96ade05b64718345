package onnx

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// checkExpansion rejects a model whose functions call themselves, whose graphs are nested more than graphs deep, or
// that is too large with the bodies of functions in place of their calls, before anything is expanded: ONNX Runtime
// sets no bound. The work is linear in the model's size, because each function is counted once.
func checkExpansion(model *ModelProto, functions map[string]*FunctionProto, graphs int) error {
	expander := &expander{graphs: graphs, functions: functions, known: map[*FunctionProto]expansion{}}
	lists := [][]*NodeProto{model.GetGraph().GetNode()}
	for _, t := range model.TrainingInfo {
		lists = append(lists, t.GetInitialization().GetNode(), t.GetAlgorithm().GetNode())
	}

	for _, list := range lists {
		if _, err := expander.count(list, expansion{}, false); err != nil {
			return err
		}
	}

	for _, f := range model.Functions {
		if _, err := expander.call(f, expansion{}); err != nil {
			return fmt.Errorf("function %s: %w", f.Name, err)
		}
	}

	return nil
}

// functionsOf returns the functions of a model by their keys.
func functionsOf(m *ModelProto) map[string]*FunctionProto {
	out := map[string]*FunctionProto{}
	for _, f := range m.Functions {
		out[callKey(f.Domain, f.Name, f.Overload)] = f
	}
	return out
}

// expansion describes nodes with the bodies of functions in place of their calls.
type expansion struct {
	nodes, bytes int // from bodies
	depth        int // of nested calls and graphs
	graphs       int // depth of nested graphs
}

func (e expansion) add(inner expansion) expansion {
	return expansion{e.nodes + inner.nodes, e.bytes + inner.bytes, max(e.depth, inner.depth),
		max(e.graphs, inner.graphs)}
}

// expander counts expansions.
type expander struct {
	graphs    int // how deep graphs may be nested
	functions map[string]*FunctionProto
	known     map[*FunctionProto]expansion
}

// check rejects what is too large. at has the depths around it.
func (x *expander) check(e, at expansion) error {
	switch {
	case at.graphs+e.graphs > x.graphs:
		return fmt.Errorf("graphs are nested more than %d deep", x.graphs)
	case at.depth+e.depth > maxDepth:
		return fmt.Errorf("functions are nested more than %d deep, or a function calls itself", maxDepth)
	case e.nodes > maxInlined || e.bytes > maxRepeated:
		return fmt.Errorf("functions make more than %d operators, or %d bytes of them", maxInlined, maxRepeated)
	}

	return nil
}

// count returns the expansion of nodes at a depth. The nodes belong to a body, or to a graph of the model.
func (x *expander) count(nodes []*NodeProto, at expansion, body bool) (all expansion, err error) {
	if err := x.check(all, at); err != nil { // recursion ends here
		return all, err
	}

	for _, node := range nodes {
		if body {
			all.nodes, all.bytes = all.nodes+1, all.bytes+proto.Size(node)
		}

		for _, g := range Subgraphs(node) {
			inner, err := x.count(g.GetNode(), expansion{depth: at.depth + 1, graphs: at.graphs + 1}, body)
			if err != nil {
				return all, err
			}
			inner.depth, inner.graphs = inner.depth+1, inner.graphs+1
			all = all.add(inner)
		}

		if f := x.functions[callKey(node.Domain, node.OpType, node.Overload)]; f != nil {
			inner, err := x.call(f, expansion{depth: at.depth + 1, graphs: at.graphs})
			if err != nil {
				return all, err
			}
			inner.depth++
			all = all.add(inner)
		}

		if err := x.check(all, at); err != nil {
			return all, err
		}
	}

	return all, nil
}

// call returns the expansion of a function's body at a depth.
func (x *expander) call(f *FunctionProto, at expansion) (expansion, error) {
	e, ok := x.known[f]
	if ok {
		return e, x.check(e, at)
	}

	e, err := x.count(f.Node, at, true)
	if err == nil {
		x.known[f] = e
	}

	return e, err
}
