package graph

import "promptfed/runtime/onnx"

// External tells whether the model keeps weights in files beside it, so that it must stay in their folder.
func (f *File) External() bool { return external(f.Proto.Graph) }

func external(g *onnx.GraphProto) bool {
	for _, t := range g.Initializer {
		if t.DataLocation == onnx.TensorProto_EXTERNAL {
			return true
		}
	}
	for _, p := range g.Node {
		for _, a := range p.Attribute {
			if a.T.GetDataLocation() == onnx.TensorProto_EXTERNAL {
				return true
			}
		}
		for _, inner := range innerGraphs(p) {
			if external(inner) {
				return true
			}
		}
	}
	return false
}
