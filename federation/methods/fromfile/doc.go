// Package fromfile holds the method "onnx": its loss, its state and what its server does are in the graph of an ONNX
// file (docs/onnx-method.md is the contract). It imports packages of federation/methods/parts, and no other group of
// methods.
//
// The file holds one graph, and one metadata entry MetadataKey with a JSON value, Metadata. There is no second graph:
// what an output may read tells whether the client's step, the end of its turn or the server computes it. Inputs are
// bound when a client's graph is built. A value that the engine computes from a value of the graph, such as class
// features of a prompt, is an input that names an output (text/x reads prompt/x, function/x its arguments), so graphs
// before the text tower and behind it are one graph. Sizes T, w, D, C, M of a client are bound then too, shapes are
// inferred again, and what is not known or too large is refused before a session opens.
//
// The file travels inside the configuration: whoever reads a configuration replaces the path by the content
// (layer.File), so a run's folder, its workers and its clients on other machines have the file wherever they have the
// configuration, and its digest is part of the experiment like any option.
package fromfile

import "promptfed/federation/methods/parts/layer"

// Methods are the definitions of this group.
var Methods = []layer.Def{onnxDef}
