package graph

import (
	"fmt"

	"promptfed/runtime/onnx"
)

func toInts(v []int64) []int {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
	}
	return out
}

// captures lists the values outside that the graphs among a node's attributes read. A value that has another name than
// they read it by gets an Identity of that name.
func (s *scope) captures(p *onnx.NodeProto) ([]Node, error) {
	var out []Node
	for _, name := range onnx.FreeNames(p) {
		n, ok := s.get(name)
		if !ok || !n.OK() {
			return nil, fmt.Errorf("its inner graph reads %q, which is made by no earlier node", name)
		}
		if n.v.name != name {
			op := n.Graph().add(lookup(Standard, "Identity"), Standard, "Identity", nil, 1, []Node{n})
			if err := infer(op); err != nil {
				return nil, err
			}
			n = op.Out[0]
			n.v.name, s.names[name] = name, n
		}
		out = append(out, n)
	}
	return out, nil
}
