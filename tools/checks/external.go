package checks

import (
	"go/ast"
	"slices"
)

// externalFields are the fields of an ONNX tensor that locate its elements in another file. Only runtime/onnx reads
// them, because it checks the place and the length of the file.
var externalFields = []string{"ExternalData", "GetExternalData", "DataLocation", "GetDataLocation",
	"TensorProto_EXTERNAL"}

// ExternalReaders finds places where a Go file reads external data without runtime/onnx.
func ExternalReaders(file string, source []byte) ([]string, error) {
	return inspect(file, source, func(n ast.Node, say sayAt) {
		if id, ok := n.(*ast.Ident); ok && slices.Contains(externalFields, id.Name) {
			say(n, "%s: only runtime/onnx may read external data; use its ExternalOf, OpenExternal or SetExternal",
				id.Name)
		}
	})
}
