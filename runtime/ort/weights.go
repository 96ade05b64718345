package ort

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"promptfed/runtime/onnx"
)

// locateWeights finds the files that the model's external tensors lie in and checks that the tensors fit. ONNX Runtime
// refuses files outside of the one folder it is given, symbolic links included, so links are followed here: the folder
// becomes the closest one that holds all the real files, and locations are rewritten where that moved them.
func (p *program) locateWeights(m *onnx.ModelProto, dir string) (changed bool, err error) {
	var external []*onnx.TensorProto
	eachTensor(m, func(t *onnx.TensorProto) {
		if t.GetDataLocation() == onnx.TensorProto_EXTERNAL {
			external = append(external, t)
		}
	})
	if len(external) == 0 {
		return false, nil
	}
	if dir == "" {
		return false, p.errorf("tensor %q lies in the file %q, but no folder was given: set Options.WeightsDir",
			external[0].GetName(), locationOf(external[0]).GetValue())
	}
	files := map[string]weightsFile{}
	for _, t := range external {
		if err := p.checkExternal(t, dir, files); err != nil {
			return false, err
		}
	}
	for _, f := range files {
		p.weights = commonFolder(p.weights, filepath.Dir(f.real))
	}
	for _, t := range external {
		entry := locationOf(t)
		location, err := filepath.Rel(p.weights, files[entry.GetValue()].real)
		if err != nil {
			return false, p.errorf("tensor %q: %s", t.GetName(), oneLine(err))
		}
		location = filepath.ToSlash(location)
		changed = changed || location != entry.GetValue()
		entry.Value = location
	}
	return changed, nil
}

// weightsFile is a file of external data behind all symbolic links.
type weightsFile struct {
	real string
	size int64
}

func (p *program) checkExternal(t *onnx.TensorProto, dir string, files map[string]weightsFile) error {
	location := locationOf(t).GetValue()
	if location == "" || !filepath.IsLocal(filepath.FromSlash(location)) {
		return p.errorf("tensor %q lies in the file %q, which is not a path inside the weights folder", t.GetName(),
			location)
	}
	f, known := files[location]
	if !known {
		real, err := filepath.EvalSymlinks(filepath.Join(dir, filepath.FromSlash(location)))
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err != nil {
			return p.errorf("tensor %q: its weights file is missing: %s", t.GetName(), oneLine(err))
		}
		info, err := os.Stat(real)
		if err != nil || !info.Mode().IsRegular() {
			return p.errorf("tensor %q: %s is not a file of weights", t.GetName(), real)
		}
		f = weightsFile{real, info.Size()}
		files[location] = f
	}
	var offset, length int64
	for _, e := range t.GetExternalData() {
		var err error
		switch e.GetKey() {
		case "offset":
			offset, err = strconv.ParseInt(e.GetValue(), 10, 64)
		case "length":
			length, err = strconv.ParseInt(e.GetValue(), 10, 64)
		}
		if err != nil {
			return p.errorf("tensor %q: %s of its external data is %q, which is no number", t.GetName(), e.GetKey(),
				e.GetValue())
		}
	}
	if offset < 0 || length < 0 || offset > f.size || length > f.size-offset {
		return p.errorf("tensor %q: %d bytes at %d are wanted of %s, which has %d: the file is cut short or another "+
			"one", t.GetName(), length, offset, f.real, f.size)
	}
	return nil
}

func locationOf(t *onnx.TensorProto) *onnx.StringStringEntryProto {
	for _, e := range t.GetExternalData() {
		if e.GetKey() == "location" {
			return e
		}
	}
	return nil
}

// eachTensor visits every tensor stored in a model: initializers and attributes, in subgraphs and functions too.
func eachTensor(m *onnx.ModelProto, visit func(*onnx.TensorProto)) {
	var graph func(*onnx.GraphProto)
	nodes := func(list []*onnx.NodeProto) {
		for _, n := range list {
			for _, a := range n.GetAttribute() {
				if a.GetT() != nil {
					visit(a.GetT())
				}
				for _, t := range a.GetTensors() {
					visit(t)
				}
				for _, g := range append(a.GetGraphs(), a.GetG()) {
					graph(g)
				}
			}
		}
	}
	graph = func(g *onnx.GraphProto) {
		for _, t := range g.GetInitializer() {
			visit(t)
		}
		nodes(g.GetNode())
	}
	graph(m.GetGraph())
	for _, f := range m.GetFunctions() {
		nodes(f.GetNode())
	}
}

// commonFolder is the deepest folder that is at or above both; a is "" at first.
func commonFolder(a, b string) string {
	if a == "" {
		return b
	}
	for a != b && !strings.HasPrefix(b, strings.TrimSuffix(a, string(filepath.Separator))+string(filepath.Separator)) {
		up := filepath.Dir(a)
		if up == a {
			break
		}
		a = up
	}
	return a
}
