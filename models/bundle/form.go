package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/runtime/atomicfile"
)

// Format is a format of bundles on disk.
type Format struct {
	// NameOf returns the name of the bundle in a folder; ok is false if the folder holds no bundle of this format.
	NameOf func(dir string) (name string, ok bool)
	// Open opens such a folder. It checks everything except the contents of large files, of which it checks only the
	// sizes (see Towers.Verify).
	Open  func(spec Spec) (*Bundle, error)
	Parts bool // whether it supports all fields of a specification, and not only the folder
	// Inspect, which may be nil, describes files and folders from which a bundle can be made.
	Inspect func(path string) (Report, error)
}

var forms []Format

// RegisterFormat adds formats to those that Open, Find, List and Inspect know. It must be called before them.
func RegisterFormat(f ...Format) { forms = append(forms, f...) }

// formOf returns the format of the bundle in a folder, if there is one.
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

func openSpec(spec Spec) (*Bundle, error) {
	if spec.Image != "" {
		i := slices.IndexFunc(forms, func(f Format) bool { return f.Parts })
		if i < 0 {
			return nil, errors.New("folders of one tower each are not supported here")
		}
		return forms[i].Open(spec)
	}

	abs, err := filepath.Abs(spec.Folder)
	if err != nil {
		return nil, err
	}

	if _, err := os.Stat(abs); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such folder", abs)
	}

	format, _, ok := formOf(abs)
	if !ok {
		return nil, fmt.Errorf("%s is not a bundle: it has no %s; make one of a checkpoint with promptfed convert, "+
			"or write one for exported towers (docs/dropin.md)", abs, ManifestFile)
	}

	if spec.Variant != "" && !format.Parts {
		return nil, fmt.Errorf("%s was converted and has no variant %q", abs, spec.Variant)
	}

	spec.Folder = abs
	b, err := format.Open(spec)
	if err != nil {
		return nil, err
	}

	b.Name, b.LogitScale = cmp.Or(spec.Name, b.Name), cmp.Or(spec.LogitScale, b.LogitScale)
	b.LogitBias = cmp.Or(spec.LogitBias, b.LogitBias)
	return b, nil
}

// Inspect describes a bundle, a checkpoint, an ONNX file or a .safetensors file; if there is no such path, it describes
// the bundle with this name (see Find). It reads no weights, except those that opening a bundle reads (Verify).
func Inspect(path string) (report Report, err error) {
	s, err := ParseSpec(path)
	if err == nil && s != (Spec{Folder: path}) || strings.HasPrefix(path, HubPrefix) {
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
		report, err = inspectONNX(path)
	default:
		i := slices.IndexFunc(forms, func(f Format) bool { return f.Inspect != nil })
		if i < 0 {
			return Report{}, fmt.Errorf("%s: no known format", path)
		}
		report, err = forms[i].Inspect(path)
	}

	report.count()
	return report, err
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

// Limits of sizes in files.
const (
	MaxExtent = 1 << 20 // of every size except those below
	MaxRows   = 1 << 24 // tokens of a vocabulary
)

// ReadManifest reads the bundle.json of a folder.
func ReadManifest(dir string) ([]byte, error) {
	return atomicfile.ReadAtMost(filepath.Join(dir, ManifestFile), maxManifest)
}

// DecodeManifest decodes a bundle.json, in which unknown keys are errors.
func DecodeManifest(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("not the JSON of a bundle: %w", err)
	}

	if _, err := dec.Token(); err != io.EOF {
		return errors.New("not the JSON of a bundle: text follows it")
	}

	return nil
}

// ListsWeights reports whether a bundle.json is that of a conversion: it lists weights, or is not JSON.
func ListsWeights(data []byte) bool {
	var keys map[string]json.RawMessage
	return json.Unmarshal(data, &keys) != nil || keys["weights"] != nil || keys["vision"] != nil
}

// DigestOf returns the SHA-256, in hex, of the JSON of a description.
func DigestOf(description any) string {
	text, err := json.Marshal(description)
	if err != nil { // every description can be written as JSON
		panic(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// CheckName returns an error if a name cannot be the name of a file.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 200 || strings.ContainsAny(name, "/\\:\x00\n") ||
		!filepath.IsLocal(name) {
		return fmt.Errorf("name %.60q: use letters, digits and dashes, as for a file", name)
	}
	return nil
}
