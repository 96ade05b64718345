package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"

	"promptfed/federation/engine/client"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/onnx"
)

// Folder is a client.Programs that returns the files of a folder in place of the graphs that a worker builds.
type Folder struct {
	Index
	Digest string // SHA-256 of all files as they are

	dir    string
	models []*onnx.ModelProto // of Programs
}

// Limits of a folder, in bytes.
const maxIndex, maxProgram = 16 << 20, 1 << 30

// Read reads the index of a folder.
func Read(dir string) (Index, error) {
	var index Index
	file := filepath.Join(dir, File)
	text, err := atomicfile.ReadAtMost(file, maxIndex)
	if err != nil {
		return index, err
	}

	if err := json.Unmarshal(text, &index); err != nil {
		return index, fmt.Errorf("%s: %w", file, err)
	}

	if index.Version != version {
		return index, fmt.Errorf("%s has version %d, this program reads version %d; write the folder again with "+
			"promptfed programs", file, index.Version, version)
	}

	for _, p := range index.Programs {
		if !filepath.IsLocal(filepath.FromSlash(p.File)) {
			return index, fmt.Errorf("%s names the file %.100q, which lies outside of the folder", file, p.File)
		}
	}

	return index, nil
}

// Open reads a folder. It refuses a folder for other files of a backbone; digests are those of the backbones by name.
func Open(dir string, digests map[string]string) (*Folder, error) {
	index, err := Read(dir)
	if err != nil {
		return nil, err
	}

	for name, digest := range digests {
		if b, ok := index.Backbones[name]; ok && b.Digest != digest {
			return nil, fmt.Errorf("%s was written for other files of backbone %s (digest %.12s, here %.12s); write "+
				"it again with promptfed programs", dir, name, b.Digest, digest)
		}
	}

	folder := &Folder{Index: index, dir: dir}
	all := sha256.New()
	for _, program := range index.Programs {
		file := filepath.Join(dir, filepath.FromSlash(program.File))
		text, err := atomicfile.ReadAtMost(file, maxProgram)
		if err != nil {
			return nil, err
		}
		m, err := onnx.Unmarshal(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		folder.models = append(folder.models, m)
		fmt.Fprintf(all, "%q %d\n", program.File, len(text))
		all.Write(text)
	}

	folder.Digest = hex.EncodeToString(all.Sum(nil))
	return folder, nil
}

// Program returns the file for a graph. Its inputs and outputs must be those of the graph.
func (f *Folder) Program(program client.Program, model *onnx.ModelProto) (*onnx.ModelProto, error) {
	_, built, err := encode(model)
	if err != nil {
		return nil, err
	}

	i := f.find(program.Backbone, built)
	if i < 0 {
		whose := "the server"
		if program.Backbone != "" {
			whose = "backbone " + program.Backbone
		}
		return nil, fmt.Errorf("runtime.programs: %s has no program of kind %s for %s as this experiment builds it: "+
			"it was written for another experiment or release; write it again with promptfed programs", f.dir,
			program.Kind,
			whose)
	}

	own := f.models[i]
	if err := sameInterface(own, model); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(f.dir, f.Programs[i].File), err)
	}

	return own, nil
}

// sameInterface returns how the inputs or outputs of a model differ from those of another.
func sameInterface(got, want *onnx.ModelProto) error {
	in, out, err := valuesOf(got)
	if err != nil {
		return err
	}

	wantIn, wantOut, err := valuesOf(want)
	if err != nil {
		return err
	}

	if g, w := signature(in), signature(wantIn); g != w {
		return fmt.Errorf("its inputs are %s; they must be %s", g, w)
	}

	if g, w := signature(out), signature(wantOut); g != w {
		return fmt.Errorf("its outputs are %s; they must be %s", g, w)
	}

	return nil
}
