package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Bytes returns a content for Write from memory.
func Bytes(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// JSON returns a content for Write: v as JSON with the given indentation, and a line feed at the end.
func JSON(v any, indent string) func(io.Writer) error {
	return func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", indent)
		return e.Encode(v)
	}
}

// ReadAtMost reads a file of at most limit bytes.
func ReadAtMost(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: it may have at most %d bytes; is it another file?", path, limit)
	}

	return b, err
}

// ReadJSON reads a JSON file of at most 1 GiB, and reports whether it exists.
func ReadJSON(path string, into any) (there bool, err error) {
	b, err := ReadAtMost(path, 1<<30)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	if err != nil {
		return true, err
	}

	if err := json.Unmarshal(b, into); err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}

	return true, nil
}
