package safetensors

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"promptfed/runtime/tensor"
)

// File is an open safetensors file. Its methods are safe for concurrent use.
type File struct {
	r       io.ReaderAt
	closer  io.Closer
	path    string
	tensors map[string]entry
	meta    map[string]string
}

// Open reads and checks the header of the file at path. Tensors are read on request. Close releases the file.
func Open(path string) (*File, error) {
	source, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}

	file, err := Parse(source, size)
	if err != nil {
		source.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	file.closer, file.path = source, path
	return file, nil
}

// OpenRegular opens a regular file and returns its size in bytes. A folder or a device is an error.
func OpenRegular(path string) (*os.File, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}

	st, err := file.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}

	if err != nil {
		file.Close()
		return nil, 0, err
	}

	return file, st.Size(), nil
}

// Parse reads and checks the header of the size bytes in r.
func Parse(r io.ReaderAt, size int64) (*File, error) {
	tensors, meta, err := readHeader(r, size)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return &File{r: r, tensors: tensors, meta: meta}, nil
}

// Close closes the file; it does nothing after Parse.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Names lists the tensors in sorted order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

// Metadata returns a copy of the free-form strings of the header.
func (f *File) Metadata() map[string]string { return maps.Clone(f.meta) }

// Info describes a stored tensor. Offset is the absolute byte offset in the file, Length its size in bytes.
type Info struct {
	DType          string
	Shape          []int
	Offset, Length int64
}

// Info describes the named tensor without reading it.
func (f *File) Info(name string) (Info, error) {
	e, ok := f.tensors[name]
	if !ok {
		return Info{}, fmt.Errorf("%sno tensor %q among %d", f.prefix(), name, len(f.tensors))
	}
	return Info{e.dtype, slices.Clone(e.shape), e.begin, e.end - e.begin}, nil
}

// Tensor reads the named tensor: floats of any width as float32, integers and booleans as int64 (see Decode).
func (f *File) Tensor(name string) (*tensor.Tensor, error) {
	info, err := f.Info(name)
	if err != nil {
		return nil, err
	}

	t, err := ReadTensor(f.r, info)
	if err != nil {
		return nil, fmt.Errorf("%stensor %q: %w", f.prefix(), name, err)
	}

	return t, nil
}

// Tensors reads every tensor.
func (f *File) Tensors() (tensor.Map, error) {
	m := tensor.Map{}
	for _, name := range f.Names() {
		t, err := f.Tensor(name)
		if err != nil {
			return nil, err
		}
		m[name] = t
	}

	return m, nil
}

// ReadFile reads every tensor and the metadata of the file at path.
func ReadFile(path string) (tensor.Map, map[string]string, error) {
	f, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	m, err := f.Tensors()
	return m, f.Metadata(), err
}

func (f *File) prefix() string {
	if f.path == "" {
		return "safetensors: "
	}
	return f.path + ": "
}

// ReadTensor converts the info.Length bytes at info.Offset of source, with a small buffer besides the result.
func ReadTensor(source io.ReaderAt, info Info) (*tensor.Tensor, error) {
	unit := int64(ElementSize(info.DType))
	if int64(tensor.Size(info.Shape))*unit != info.Length {
		return nil, fmt.Errorf("%s%v does not fit %d bytes", info.DType, info.Shape, info.Length)
	}

	values, err := NewTensor(info.DType, info.Shape)
	if err != nil {
		return nil, err
	}

	buf := make([]byte, min(info.Length, 1<<18))
	for done := int64(0); done < info.Length; done += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), info.Length-done)]
		if err := readFull(source, buf, info.Offset+done); err != nil {
			return nil, err
		}
		if err := Decode(info.DType, buf, values, int(done/unit)); err != nil {
			return nil, err
		}
	}

	return values, nil
}
