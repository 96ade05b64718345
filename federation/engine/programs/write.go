package programs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"promptfed/federation/engine/client"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/onnx"
)

// Writer is a client.Programs that writes each graph into a folder, once. Close writes the index.
type Writer struct {
	dir string

	mu    sync.Mutex
	index Index
	files map[string]int // by the name without a number
}

// Create returns the writer of a new folder. digests are those of the backbones by name.
func Create(dir string, digests map[string]string) (*Writer, error) {
	if _, err := os.Stat(filepath.Join(dir, File)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds programs already; choose another --out", dir)
	}

	w := &Writer{dir: dir, index: Index{Version: version, Backbones: map[string]Backbone{}}, files: map[string]int{}}
	for name, digest := range digests {
		w.index.Backbones[name] = Backbone{Digest: digest}
	}

	return w, nil
}

// Program writes a graph and returns it.
func (w *Writer) Program(program client.Program, model *onnx.ModelProto) (*onnx.ModelProto, error) {
	text, built, err := encode(model)
	if err != nil {
		return nil, err
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.index.find(program.Backbone, built) >= 0 {
		return model, nil
	}

	entry, err := describe(program, model)
	if err != nil {
		return nil, err
	}

	name := path.Join(program.Backbone, string(program.Kind))
	entry.Built, entry.File = built, name+".onnx"
	if w.files[name]++; w.files[name] > 1 {
		entry.File = fmt.Sprintf("%s-%d.onnx", name, w.files[name])
	}

	if b, ok := w.index.Backbones[program.Backbone]; ok && program.Weights != "" {
		if b.Weights, err = filepath.Abs(program.Weights); err != nil {
			return nil, err
		}
		w.index.Backbones[program.Backbone] = b
	}

	file := filepath.Join(w.dir, filepath.FromSlash(entry.File))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("%w; choose another --out", err)
	}

	w.index.Programs = append(w.index.Programs, entry)
	return model, atomicfile.Write(file, atomicfile.Bytes(text))
}

// Close writes the index, and returns it.
func (w *Writer) Close() (Index, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.index.Programs {
		w.index.link(i)
	}
	return w.index, atomicfile.Write(filepath.Join(w.dir, File), atomicfile.JSON(w.index, "  "))
}

// link finds the program that computes the fixed inputs of another. A run builds it next.
func (x *Index) link(i int) {
	program := &x.Programs[i]
	missing := func(from []Value) bool {
		return slices.ContainsFunc(program.Inputs, func(in Value) bool {
			gives := func(v Value) bool { return v.Name == in.Name }
			return in.From == client.FixedInput && !slices.ContainsFunc(from, gives)
		})
	}

	if !missing(nil) {
		return
	}

	for _, next := range x.Programs[i+1:] {
		if next.Kind == client.FixedProgram && next.Backbone == program.Backbone && !missing(next.Outputs) {
			program.Reads = []string{next.File}
			return
		}
	}
}

// encode returns the bytes of a graph and their SHA-256.
func encode(m *onnx.ModelProto) (text []byte, digest string, err error) {
	if text, err = onnx.Marshal(m); err != nil {
		return nil, "", err
	}
	return text, fmt.Sprintf("%x", sha256.Sum256(text)), nil
}
