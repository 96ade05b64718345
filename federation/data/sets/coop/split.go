package coop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"promptfed/federation/data/sets/source"
)

// readSplitFile reads a file split_zhou_*.json.
func readSplitFile(path string) (*source.Listing, error) {
	r, done, err := source.OpenList(path)
	if err != nil {
		return nil, err
	}
	defer done()

	l, err := readSplit(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: expected CoOp's {\"train\": [[path, label, class name], ...], \"val\": ..., "+
			"\"test\": ...}", path, err)
	}

	l.List = path
	return l, nil
}

// readSplit reads CoOp's split format, one image at a time. It ignores other keys; val may be missing.
func readSplit(r io.Reader) (*source.Listing, error) {
	listing := &source.Listing{}
	dec := json.NewDecoder(r)
	dec.UseNumber()
	if err := source.ReadDelim(dec, '{'); err != nil {
		return nil, err
	}

	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, source.JSONError(err)
		}

		key := t.(string) // the decoder returns no other type here
		if key != "train" && key != "val" && key != "test" {
			var other json.RawMessage
			if err := dec.Decode(&other); err != nil {
				return nil, source.JSONError(err)
			}
			continue
		}

		if seen[key] {
			return nil, fmt.Errorf("%q occurs twice", key)
		}

		seen[key] = true
		if err := splitList(listing, dec, key); err != nil {
			return nil, err
		}
	}

	if err := source.ReadDelim(dec, '}'); err != nil {
		return nil, err
	}

	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("there is data after the object")
	}

	if !seen["train"] || !seen["test"] {
		return nil, errors.New(`"train" or "test" is missing`)
	}

	if len(listing.Items) == 0 {
		return nil, errors.New("it lists no images")
	}

	return listing, nil
}

func splitList(listing *source.Listing, dec *json.Decoder, split string) error {
	if err := source.ReadDelim(dec, '['); err != nil {
		return err
	}

	for i := 0; dec.More(); i++ {
		where := fmt.Sprintf("%s[%d]", split, i)
		var entry []any
		if err := dec.Decode(&entry); err != nil {
			return fmt.Errorf("%s: %w", where, source.JSONError(err))
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

		if err := listing.AddNamed(where, class, source.Item{Path: path, Label: label, Split: split}); err != nil {
			return err
		}
	}

	return source.ReadDelim(dec, ']')
}
