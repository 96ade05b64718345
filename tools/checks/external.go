package checks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

// externalFields are the fields of an ONNX tensor that locate its elements in another file. Only runtime/onnx reads
// them, because it checks the place and the length of the file.
var externalFields = []string{"ExternalData", "GetExternalData", "DataLocation", "GetDataLocation",
	"TensorProto_EXTERNAL"}

// ExternalReaders finds places where a Go file reads external data without runtime/onnx.
func ExternalReaders(file string, source []byte) ([]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var bad []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && slices.Contains(externalFields, id.Name) {
			bad = append(bad, fmt.Sprintf("%s: %s: only runtime/onnx may read external data; use its ExternalOf, "+
				"OpenExternal or SetExternal", set.Position(id.Pos()), id.Name))
		}
		return true
	})
	return bad, nil
}
