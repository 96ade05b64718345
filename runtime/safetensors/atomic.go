package safetensors

import (
	"io"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// WriteFile writes m to path with atomicfile.Write.
func WriteFile(path string, m tensor.Map, metadata map[string]string) error {
	return atomicfile.Write(path, func(w io.Writer) error { return Write(w, m, metadata) })
}

// WritePrivateFile writes m to path with atomicfile.WritePrivate.
func WritePrivateFile(path string, m tensor.Map, metadata map[string]string) error {
	return atomicfile.WritePrivate(path, func(w io.Writer) error { return Write(w, m, metadata) })
}

// WriteHalfFile is WriteFile with floats rounded to half precision, F16.
func WriteHalfFile(path string, m tensor.Map, metadata map[string]string) error {
	return atomicfile.Write(path, func(w io.Writer) error { return write(w, m, metadata, "F16") })
}
