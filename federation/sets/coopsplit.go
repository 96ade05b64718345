package sets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// maxList is the largest list file that is read, in bytes.
const maxList = 256 << 20

// openList opens a list for reading: without a byte order mark, and not more than maxList bytes of it.
func openList(path string) (io.Reader, func() error, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = fmt.Errorf("%s is a folder: expected a file", path)
	}
	if err == nil && st.Size() > maxList {
		err = fmt.Errorf("%s has %d bytes: a list of images has at most %d", path, st.Size(), maxList)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return unmarked(io.LimitReader(f, maxList)), f.Close, nil
}

// unmarked is text without a byte order mark, as UTF-8.
func unmarked(r io.Reader) io.Reader {
	return transform.NewReader(r, unicode.BOMOverride(transform.Nop))
}

// readSplitFile reads a split_zhou_*.json.
func readSplitFile(path string) (*roll, error) {
	r, done, err := openList(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := readSplit(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: expected CoOp's {\"train\": [[path, label, class name], ...], \"val\": ..., "+
			"\"test\": ...}", path, err)
	}
	l.list = path
	return l, nil
}

// readSplit reads CoOp's split format image by image. Other keys are passed over; val may be missing.
func readSplit(r io.Reader) (*roll, error) {
	l := &roll{}
	dec := json.NewDecoder(r)
	dec.UseNumber()
	if err := delim(dec, '{'); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, jsonError(err)
		}
		key := t.(string) // the decoder gives nothing else here
		if key != "train" && key != "val" && key != "test" {
			var other json.RawMessage
			if err := dec.Decode(&other); err != nil {
				return nil, jsonError(err)
			}
			continue
		}
		if seen[key] {
			return nil, fmt.Errorf("%q is there twice", key)
		}
		seen[key] = true
		if err := l.splitList(dec, key); err != nil {
			return nil, err
		}
	}
	if err := delim(dec, '}'); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the object")
	}
	if !seen["train"] || !seen["test"] {
		return nil, errors.New(`"train" or "test" is missing`)
	}
	if len(l.items) == 0 {
		return nil, errors.New("it lists no images")
	}
	return l, nil
}

func (l *roll) splitList(dec *json.Decoder, split string) error {
	if err := delim(dec, '['); err != nil {
		return err
	}
	for i := 0; dec.More(); i++ {
		where := fmt.Sprintf("%s[%d]", split, i)
		var entry []any
		if err := dec.Decode(&entry); err != nil {
			return fmt.Errorf("%s: %w", where, jsonError(err))
		}
		if len(entry) != 3 {
			return fmt.Errorf("%s has %d parts, not 3", where, len(entry))
		}
		path, ok := entry[0].(string)
		class, ok2 := entry[2].(string)
		label, err := strconv.Atoi(fmt.Sprint(entry[1]))
		if !ok || !ok2 || err != nil {
			return fmt.Errorf("%s is not a path, a whole number and a class name", where)
		}
		if err := l.name(where, label, class); err != nil {
			return err
		}
		if err := l.add(where, item{path: path, label: label, split: split}); err != nil {
			return err
		}
	}
	return delim(dec, ']')
}

func delim(dec *json.Decoder, want json.Delim) error {
	t, err := dec.Token()
	if err != nil {
		return jsonError(err)
	}
	if t != want {
		return fmt.Errorf("%.40q where %q was expected", fmt.Sprint(t), want.String())
	}
	return nil
}

// jsonError tells an end inside a value from other errors.
func jsonError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends early")
	}
	return err
}
