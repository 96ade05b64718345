package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Format is a way in which bundles lie on disk.
type Format struct {
	// NameOf gives the name of the bundle in a folder; ok is false where the folder holds none of this form.
	NameOf func(dir string) (name string, ok bool)
	// Open opens such a folder. Everything that it says is checked but the contents of large files, of which only the
	// sizes are (see Towers.Verify).
	Open  func(spec Spec) (*Bundle, error)
	Parts bool // whether it takes more of a specification than a folder
	// Inspect, where it is set, tells of files and folders that are no bundle, but that one can be made of.
	Inspect func(path string) (Report, error)
}

var forms []Format

// RegisterFormat makes forms known to Open, Find, List and Inspect. It is called before any of them.
func RegisterFormat(f ...Format) { forms = append(forms, f...) }

// formOf is the form of the bundle in a folder, if there is one.
func formOf(dir string) (f Format, name string, ok bool) {
	for _, f := range forms {
		if name, ok := f.NameOf(dir); ok {
			return f, name, true
		}
	}
	return Format{}, "", false
}

// Open opens the bundle in a folder.
func Open(dir string) (*Bundle, error) { return openSpec(Spec{Folder: dir}) }

func openSpec(s Spec) (*Bundle, error) {
	if s.Image != "" {
		i := slices.IndexFunc(forms, func(f Format) bool { return f.Parts })
		if i < 0 {
			return nil, errors.New("folders of one tower each are not supported here")
		}
		return forms[i].Open(s)
	}
	abs, err := filepath.Abs(s.Folder)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(abs); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such folder", abs)
	}
	f, _, ok := formOf(abs)
	if !ok {
		return nil, fmt.Errorf("%s is not a bundle: it has no %s; make one of a checkpoint with promptfed convert, "+
			"or write one for exported towers (docs/dropin.md)", abs, ManifestFile)
	}
	if s.Variant != "" && !f.Parts {
		return nil, fmt.Errorf("%s was converted and has no variant %q", abs, s.Variant)
	}
	name := s.Name
	if s.Folder = abs; !f.Parts {
		s.Name = ""
	}
	b, err := f.Open(s)
	if err != nil {
		return nil, err
	}
	b.Name, b.LogitScale = cmp.Or(name, b.Name), cmp.Or(s.LogitScale, b.LogitScale)
	b.LogitBias = cmp.Or(s.LogitBias, b.LogitBias)
	return b, nil
}

// Inspect tells what is in a bundle, a checkpoint, an ONNX file or a .safetensors file, or in the bundle of a name (see
// Find) if there is no such file. It reads no weights, but for what opening a bundle reads (Verify).
func Inspect(path string) (r Report, err error) {
	if s, err := ParseSpec(path); err == nil && s != (Spec{Folder: path}) {
		return reportOf(Find(path))
	}
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(path, `/\`) {
		b, unknown := Find(path)
		if unknown != nil {
			return Report{}, fmt.Errorf("%w; %w", err, unknown)
		}
		return reportOf(b, nil)
	}
	if err != nil {
		return Report{}, err
	}
	dir := path
	if !st.IsDir() && filepath.Base(path) == ManifestFile {
		dir = filepath.Dir(path)
	}
	_, _, isBundle := formOf(dir)
	switch {
	case isBundle:
		return reportOf(Open(dir))
	case !st.IsDir() && strings.HasSuffix(strings.ToLower(path), ".onnx"):
		r, err = inspectONNX(path)
	default:
		err = fmt.Errorf("%s: nothing that is known", path)
		for _, f := range forms {
			if f.Inspect != nil {
				r, err = f.Inspect(path)
				break
			}
		}
	}
	r.count()
	return r, err
}

func reportOf(b *Bundle, err error) (Report, error) {
	if err != nil {
		return Report{}, err
	}
	r := Report{Kind: KindBundle, Path: b.Dir, Format: b.Source, Bundle: b}
	b.Report(&r)
	r.count()
	return r, nil
}

const maxManifest = 16 << 20 // bytes of bundle.json

// Limits of what files say of sizes.
const (
	MaxExtent = 1 << 20 // of any size but those below
	MaxRows   = 1 << 24 // tokens of a vocabulary
)

// ReadManifest reads the bundle.json of a folder.
func ReadManifest(dir string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("%s: more than %d bytes: not a bundle", f.Name(), maxManifest)
	}
	return data, err
}

// CheckName refuses names that could not be the name of a file.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 200 || strings.ContainsAny(name, "/\\:\x00\n") ||
		!filepath.IsLocal(name) {
		return fmt.Errorf("name %.60q: use letters, digits and dashes, as for a file", name)
	}
	return nil
}
