package onnx

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/filestamp"

	"google.golang.org/protobuf/proto"
)

// External is the place of elements in a file beside a model, in row order, little-endian.
type External struct {
	File           string // relative to the folder of the model, with slashes
	Offset, Length int64  // bytes
}

// IsExternal reports whether a tensor's elements lie in another file.
func IsExternal(t *TensorProto) bool { return t.GetDataLocation() == TensorProto_EXTERNAL }

// HasExternal reports whether a model has tensors in other files, so that it must stay in their folder.
func HasExternal(m *ModelProto) bool {
	for range externals(m) {
		return true
	}
	return false
}

// externals iterates over the tensors of a model that lie in other files.
func externals(m *ModelProto) iter.Seq[*TensorProto] {
	return func(yield func(*TensorProto) bool) {
		for t := range Tensors(m) {
			if IsExternal(t) && !yield(t) {
				return
			}
		}
	}
}

// ExternalOf returns the place of a tensor's elements. It checks what it can without the files: the path stays inside
// the model's folder, and the length is that of the dimensions.
func ExternalOf(tensor *TensorProto) (External, error) {
	external := External{}
	fail := func(format string, a ...any) (External, error) {
		return External{}, fmt.Errorf("tensor %q: "+format, append([]any{tensor.GetName()}, a...)...)
	}
	size, known, err := ByteSize(tensor)
	if err != nil {
		return fail("%w", err)
	}

	if !known {
		return fail("elements of type %v cannot lie in a file", TensorProto_DataType(tensor.DataType))
	}

	external.Length = size // the standard makes it optional
	for i, entry := range tensor.ExternalData {
		if slices.ContainsFunc(tensor.ExternalData[:i],
			func(x *StringStringEntryProto) bool { return x.Key == entry.Key }) {
			return fail("its external data names %.60q twice", entry.Key)
		}

		switch entry.Key {
		case "location":
			external.File = entry.Value
		case "offset":
			external.Offset, err = strconv.ParseInt(entry.Value, 10, 64)
		case "length":
			external.Length, err = strconv.ParseInt(entry.Value, 10, 64)
		}

		if err != nil {
			return fail("%s of its external data is %.60q, which is no number", entry.Key, entry.Value)
		}
	}

	if err := checkLocation(external.File); err != nil {
		return fail("%w", err)
	}

	if external.Offset < 0 || external.Length < 0 || external.Offset > math.MaxInt64-external.Length {
		return fail("%d bytes at %d of %s are no place in a file", external.Length, external.Offset, external.File)
	}

	if external.Length != size {
		return fail("%d bytes of %s are named for dimensions %v of type %v, which take %d", external.Length,
			external.File, tensor.Dims, TensorProto_DataType(tensor.DataType), size)
	}

	return external, nil
}

// SetExternal makes a tensor refer to elements in a file.
func SetExternal(t *TensorProto, e External) {
	t.DataLocation, t.RawData = TensorProto_EXTERNAL, nil
	t.ExternalData = []*StringStringEntryProto{
		{Key: "location", Value: e.File},
		{Key: "offset", Value: strconv.FormatInt(e.Offset, 10)},
		{Key: "length", Value: strconv.FormatInt(e.Length, 10)},
	}
}

// maxPath bounds the path of a file of external data, in bytes.
const maxPath = 4096

func checkLocation(location string) error {
	if location == "" || len(location) > maxPath || !filepath.IsLocal(filepath.FromSlash(location)) ||
		strings.ContainsFunc(location, unprintable) || strings.Contains(location, `\`) {
		return fmt.Errorf("it lies in the file %.200q, which is not a path inside the folder of the model", location)
	}
	return nil
}

// place is a file of external data with all symbolic links resolved.
type place struct {
	path string
	size int64
}

// find returns a file of external data. Neither its path nor symbolic links may lead out of the folder. Exception:
// links between the folders of one repository in Hugging Face's cache, which keeps all contents in blobs/ beside
// snapshots/.
func find(dir, location string) (place, error) {
	if err := checkLocation(location); err != nil {
		return place{}, err
	}

	base, err := filestamp.RealPath(dir)
	if err != nil {
		return place{}, err
	}

	path, err := filestamp.RealPath(filepath.Join(dir, filepath.FromSlash(location)))
	if err != nil {
		return place{}, fmt.Errorf("its weights file %s is missing: %w", location, err)
	}

	info, err := os.Stat(path)
	switch {
	case err != nil:
		return place{}, err
	case !info.Mode().IsRegular():
		return place{}, fmt.Errorf("%s is not a file of weights", path)
	case !inside(base, path) && !inside(blobs(base), path):
		return place{}, fmt.Errorf("%s is a link to %s, outside of the folder of the model: put the file itself, or a "+
			"hard link, there", location, path)
	}

	return place{path, info.Size()}, nil
}

// blobs returns the folder that a snapshot in Hugging Face's cache links to, and "" for other folders.
func blobs(dir string) string {
	for d := dir; d != filepath.Dir(d); d = filepath.Dir(d) {
		if filepath.Base(filepath.Dir(d)) == "snapshots" {
			return filepath.Join(filepath.Dir(filepath.Dir(d)), "blobs")
		}
	}
	return ""
}

func inside(dir, path string) bool {
	return dir != "" && strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+
		string(filepath.Separator))
}

func (p place) check(e External) error {
	if e.Offset < 0 || e.Length < 0 || e.Offset > p.size || e.Length > p.size-e.Offset {
		return fmt.Errorf("the model reads %d bytes at %d of %s, which has %d: the file is cut short or wrong",
			e.Length, e.Offset, p.path, p.size)
	}
	return nil
}

// OpenExternal opens the file of external elements after a check that it is inside the folder and long enough.
func OpenExternal(dir string, e External) (*os.File, error) {
	p, err := find(dir, e.File)
	if err == nil {
		err = p.check(e)
	}

	if err != nil {
		return nil, err
	}

	return os.Open(p.path)
}

// ReadExternal reads external elements from a file in dir.
func ReadExternal(dir string, e External) ([]byte, error) {
	f, err := OpenExternal(dir, e)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	b := make([]byte, e.Length)
	_, err = io.ReadFull(io.NewSectionReader(f, e.Offset, e.Length), b)
	return b, err
}

// places returns the files of all external tensors, and checks that each tensor lies within its file.
func places(m *ModelProto, dir string) (map[string]place, error) {
	files := map[string]place{}
	for tensor := range externals(m) {
		external, err := ExternalOf(tensor)
		if err != nil {
			return nil, err
		}

		if dir == "" {
			return nil, fmt.Errorf("tensor %q lies in the file %q, but no folder was given", tensor.Name, external.File)
		}

		file, known := files[external.File]
		if !known {
			file, err = find(dir, external.File)
		}

		if err == nil {
			err = file.check(external)
		}

		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", tensor.Name, err)
		}

		files[external.File] = file
	}

	return files, nil
}

// CheckExternal checks that the files of all external tensors exist in the folder dir and are long enough.
func CheckExternal(m *ModelProto, dir string) error {
	_, err := places(m, dir)
	return err
}

// ExternalFiles lists the external data files of a model, sorted, with slashes.
func ExternalFiles(m *ModelProto) ([]string, error) {
	var out []string
	for t := range externals(m) {
		e, err := ExternalOf(t)
		if err != nil {
			return nil, err
		}
		out = append(out, e.File)
	}

	slices.Sort(out)
	return slices.Compact(out), nil
}

// LocateExternal checks all external tensors of a model whose files lie in dir. It returns the model in the form that
// ONNX Runtime needs, and the folder to pass to it ("" without external data). ONNX Runtime rejects files outside of
// that folder, also behind symbolic links, so LocateExternal resolves links. The folder is the deepest one that
// contains all real files; if locations change, the model is a copy.
func LocateExternal(model *ModelProto, dir string) (*ModelProto, string, error) {
	files, err := places(model, dir)
	if err != nil || len(files) == 0 {
		return model, "", err
	}

	folder := ""
	for _, p := range files {
		folder = commonFolder(folder, filepath.Dir(p.path))
	}

	moved := map[string]string{}
	for location, p := range files {
		now, err := filepath.Rel(folder, p.path)
		if err != nil {
			return nil, "", err
		}
		if now = filepath.ToSlash(now); now != location {
			moved[location] = now
		}
	}

	if len(moved) == 0 {
		return model, folder, nil
	}

	model = proto.Clone(model).(*ModelProto)
	for t := range externals(model) {
		for _, entry := range t.ExternalData {
			if entry.Key == "location" && moved[entry.Value] != "" {
				entry.Value = moved[entry.Value]
			}
		}
	}

	return model, folder, nil
}

// commonFolder returns the deepest folder at or above both; folder is "" at first.
func commonFolder(folder, b string) string {
	if folder == "" {
		return b
	}

	for folder != b && !inside(folder, b) {
		up := filepath.Dir(folder)
		if up == folder {
			break
		}
		folder = up
	}

	return folder
}

// maxFile is the maximum size of a model file: protobuf's limit minus room for metadata.
const maxFile = math.MaxInt32 - 1<<20

// Embed reads all external tensors, from files in dir, into the model.
func Embed(model *ModelProto, dir string) error {
	if err := CheckExternal(model, dir); err != nil {
		return err
	}

	total := int64(proto.Size(model))
	for t := range externals(model) {
		e, err := ExternalOf(t)
		if err != nil {
			return err
		}
		if total += e.Length; total > maxFile {
			return errors.New("with embedded weights the model would exceed the 2 GiB that an ONNX file may have: " +
				"use a smaller backbone")
		}
	}

	for t := range externals(model) {
		e, err := ExternalOf(t)
		if err != nil {
			return err
		}
		if t.RawData, err = ReadExternal(dir, e); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		t.ExternalData, t.DataLocation = nil, TensorProto_DEFAULT
	}

	return nil
}
