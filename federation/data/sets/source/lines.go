package source

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"promptfed/runtime/convert"
)

// EachLine calls do for every non-blank line of a text file, with its place.
func EachLine(file string, do func(where, line string) error) error {
	r, done, err := OpenList(file)
	if err != nil {
		return err
	}
	defer done()
	return ScanLines(r, file, do)
}

// ScanLines is EachLine for an open text, of which file is the name in errors. White space around a line is removed. A
// line of more than 64 KiB is an error, and the first error of do ends the scan.
func ScanLines(r io.Reader, file string, do func(where, line string) error) error {
	sc := bufio.NewScanner(r)
	n := 1
	for ; sc.Scan(); n++ {
		if line := strings.TrimSpace(sc.Text()); line != "" {
			if err := do(fmt.Sprintf("%s: line %d", file, n), line); err != nil {
				return err
			}
		}
	}

	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%s: line %d is longer than %d bytes", file, n, bufio.MaxScanTokenSize)
	}

	if sc.Err() != nil {
		return fmt.Errorf("%s: %w", file, sc.Err())
	}

	return nil
}

// MaxList is the largest list file that is read, in bytes.
const MaxList = 256 << 20

// OpenList opens a list for reading, without a byte order mark, limited to MaxList bytes.
func OpenList(path string) (io.Reader, func() error, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}

	st, err := file.Stat()
	if err == nil && st.IsDir() {
		err = fmt.Errorf("%s is a folder: expected a file", path)
	}

	if err == nil && st.Size() > MaxList {
		err = fmt.Errorf("%s has %d bytes: a list of images has at most %d", path, st.Size(), MaxList)
	}

	if err != nil {
		file.Close()
		return nil, nil, err
	}

	return WithoutBOM(io.LimitReader(file, MaxList)), file.Close, nil
}

// DecodeList reads a list in JSON; expected describes the expected content, for errors.
func DecodeList(path string, into any, expected string) error {
	r, done, err := OpenList(path)
	if err != nil {
		return err
	}
	defer done()

	if err := json.NewDecoder(r).Decode(into); err != nil {
		return fmt.Errorf("%s: %w: expected %s", path, JSONError(err), expected)
	}

	return nil
}

// WithoutBOM returns the text as UTF-8 without a byte order mark.
func WithoutBOM(r io.Reader) io.Reader {
	return transform.NewReader(r, unicode.BOMOverride(transform.Nop))
}

// ReadDelim reads the next token of a JSON text, which must be a certain bracket or brace.
func ReadDelim(dec *json.Decoder, want json.Delim) error {
	t, err := dec.Token()
	if err != nil {
		return JSONError(err)
	}

	if t != want {
		return fmt.Errorf("%.40q where %q was expected", fmt.Sprint(t), want.String())
	}

	return nil
}

// JSONError replaces the error of JSON that ends early.
func JSONError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends early")
	}
	return err
}

// UnderscoresToSpaces returns the names with underscores replaced by spaces.
func UnderscoresToSpaces(names []string) []string {
	return convert.Slice(names, func(name string) string { return strings.ReplaceAll(name, "_", " ") })
}
