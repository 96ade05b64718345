//go:build unix

package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
)

// ONNX Runtime 1.30.0 reads outside of its memory for a loop whose body has a constant as an input. Every command that
// reads graphs refuses such a graph before it makes a session, with one line and no crash.
func TestMalformedGraphsOnEveryWay(t *testing.T) {
	dir := t.TempDir()
	tower := filepath.Join(dir, "tower")
	goldentest.NoError(t, os.CopyFS(tower, os.DirFS("../../../models/bundle/exported/testdata/hf-half")))
	for _, file := range []string{"image.onnx", "text.onnx"} {
		path, m := filepath.Join(tower, file), &onnx.ModelProto{}
		goldentest.NoError(t, proto.Unmarshal(filetest.Read(t, path), m))
		body := &onnx.GraphProto{Name: "body", Initializer: []*onnx.TensorProto{{Name: "go",
			DataType: int32(onnx.TensorProto_BOOL), RawData: []byte{1}}}}
		for _, name := range []string{"turn", "go"} {
			body.Input = append(body.Input, &onnx.ValueInfoProto{Name: name})
		}
		m.Graph.Node = append(m.Graph.Node, &onnx.NodeProto{OpType: "Loop", Name: "odd", Input: []string{"", ""},
			Output: []string{"nothing"}, Attribute: []*onnx.AttributeProto{{Name: "body",
				Type: onnx.AttributeProto_GRAPH, G: body}}})
		b, err := onnx.Marshal(m)
		goldentest.NoError(t, err)
		filetest.Write(t, path, b)
	}
	picture, config := filepath.Join(dir, "picture.png"), filepath.Join(dir, "run.yaml")
	filetest.Write(t, picture, "")
	filetest.Write(t, config, good)
	image := filepath.Join(tower, "image.onnx")
	for _, args := range [][]string{
		{"inspect", image}, {"inspect", "--provider", "cpu", image}, {"check", image}, {"predict", image, picture},
		{"grad", image, "--of", "y", "--wrt", "x", "--out", filepath.Join(dir, "out.onnx")},
		{"inspect", tower}, {"check", tower},
		{"run", config, "--set", "backbones=" + tower, "--out", filepath.Join(dir, "out")},
	} {
		code, text := quiet(t, dir, args)
		last := strings.TrimSpace(text[strings.LastIndexByte(strings.TrimSpace(text), '\n')+1:])
		if code == done || !strings.Contains(last, "Loop (node odd): 2 inputs for a body that takes 1 besides its "+
			"constants") || !strings.HasPrefix(last, "promptfed: ") {
			t.Errorf("%v ends with %d and says %.600q", args, code, text)
		}
	}
}
