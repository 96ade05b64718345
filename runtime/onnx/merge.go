package onnx

import "slices"

// Part is one graph of a chain of graphs. Merge changes it.
type Part struct {
	Name  string // prefix of all names inside
	Model *ModelProto
	Feeds map[string]string // for each input that an earlier part feeds: PART/NAME of the value
}

// Merge joins a chain of graphs to one graph. Every value gets the name of its part as a prefix, and fed inputs are
// replaced by the values that feed them. Inputs of the first part and outputs of the last keep their names. The
// operators that the parts use have the same meaning in all operator sets from Opset on, so the latest set is correct.
//
// graph.Inline would rebuild the parts in float32. But an exported classifier must contain exactly the tower that
// computed the client's features, with half precision, or its probabilities would differ.
func Merge(parts ...Part) *ModelProto {
	all := &ModelProto{ProducerName: "promptfed", Graph: &GraphProto{Name: "classifier"}}
	for i, part := range parts {
		graph := part.Model.Graph
		keep := map[string]bool{"": true}
		if i == 0 {
			all.Graph.Input = graph.Input
			for _, in := range graph.Input {
				keep[in.Name] = true
			}
		}

		if i == len(parts)-1 {
			all.Graph.Output = graph.Output
			for _, out := range graph.Output {
				keep[out.Name] = true
			}
		}

		rename(graph, func(name string) string {
			switch from, fed := part.Feeds[name]; {
			case fed:
				return from
			case keep[name]:
				return name
			}
			return part.Name + "/" + name
		})

		all.Graph.Node = append(all.Graph.Node, graph.Node...)
		all.Graph.Initializer = append(all.Graph.Initializer, graph.Initializer...)
		all.Functions = append(all.Functions, part.Model.Functions...)
		all.IrVersion = max(all.IrVersion, part.Model.IrVersion)
		for _, o := range part.Model.OpsetImport {
			if Standard(o.Domain) {
				o = &OperatorSetIdProto{Version: o.Version}
			}
			k := slices.IndexFunc(all.OpsetImport, func(a *OperatorSetIdProto) bool { return a.Domain == o.Domain })
			if k < 0 {
				k = len(all.OpsetImport)
				all.OpsetImport = append(all.OpsetImport, &OperatorSetIdProto{Domain: o.Domain})
			}
			all.OpsetImport[k].Version = max(all.OpsetImport[k].Version, o.Version)
		}
	}

	return all
}

func rename(graph *GraphProto, to func(string) string) {
	for _, list := range [][]*ValueInfoProto{graph.Input, graph.Output, graph.ValueInfo} {
		for _, v := range list {
			v.Name = to(v.Name)
		}
	}

	for _, t := range graph.Initializer {
		t.Name = to(t.Name)
	}

	for _, n := range graph.Node {
		for _, list := range [][]string{n.Input, n.Output} {
			for i, name := range list {
				list[i] = to(name)
			}
		}
		if n.Name != "" {
			n.Name = to(n.Name)
		}
		for _, inner := range Subgraphs(n) {
			rename(inner, to)
		}
	}
}
