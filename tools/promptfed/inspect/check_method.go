package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// method checks a file of the method "onnx" as a run does, and reports whether the file is one.
func (c *checks) method(ctx context.Context, path string) (is bool, err error) {
	if info, err := os.Stat(path); err != nil || info.Size() > layer.MaxFile {
		return false, err
	}

	content, err := os.ReadFile(path)
	if err != nil || !fromfile.Is(content) {
		return false, err
	}

	m, err := methods.Build("onnx", nil, map[string]any{"file": string(layer.EmbedFile(filepath.Base(path), content))})
	if err = cmp.Or(fromfile.Check(content), err); err == nil { // the first error names no option
		c.add(checkDone{What: "method with the loss " + strings.Join(method.TermNames(m), " + "), OK: true})
		err = c.values(ctx, path, content)
	}

	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return true, err
}

// values compares the outputs of a method's file with PyTorch's, which promptfed.Method.export writes beside it with
// the values of the inputs. Each tensor there has the name and the shape of an input or output. What is not finite in
// PyTorch is left out, and so is a file that computes in half precision. Differences are relative to 1 where all values
// are smaller, since small values may be rounded differences of larger ones.
func (c *checks) values(ctx context.Context, path string, content []byte) error {
	values, _, err := safetensors.ReadFile(strings.TrimSuffix(path, ".onnx") + "." + witnessFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	model, invalid := onnx.Unmarshal(content)
	if err = cmp.Or(err, invalid); err != nil || slices.ContainsFunc(model.Graph.Node, toHalf) {
		return err
	}

	feeds := tensor.Map{}
	for _, in := range model.Graph.Input {
		if value, ok := values[in.Name]; ok {
			feeds[in.Name] = value
		}
	}

	out, err := ort.RunOnce(ctx, model, ort.Options{}, feeds)
	if err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(out)) {
		got, want := out[name], values[name]
		if want == nil || !got.SameShape(want) || want.NonFinite() < 0 &&
			!(tensor.Distance(got, want) <= agreement*max(want.MaxAbs(), 1)) {
			return fmt.Errorf("%s differs from PyTorch's by more than %.2g of the largest value: its exporter changed "+
				"the computation; use other functions", name, agreement)
		}
	}

	return nil
}

// toHalf reports whether a node converts to half precision, in which libraries round differently or lack operators.
func toHalf(n *onnx.NodeProto) bool {
	to := onnx.TensorProto_DataType(onnx.Attribute(n, "to").GetI())
	return n.OpType == "Cast" && (to == onnx.TensorProto_FLOAT16 || to == onnx.TensorProto_BFLOAT16)
}
