package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// parseHeader parses JSON token by token, because encoding/json would take the last of two equal names, ignore the case
// of keys, and allocate slices of any length.
func parseHeader(raw []byte) (map[string]entry, map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	tensors := map[string]entry{}
	var meta map[string]string
	err := object(dec, func(name string) error {
		switch {
		case len(name) > maxName:
			return fmt.Errorf("a tensor has a name of %d bytes, the limit is %d", len(name), maxName)
		case len(tensors) >= maxTensors:
			return fmt.Errorf("more than %d tensors; store them in several files", maxTensors)
		case name == metadataKey:
			var err error
			meta, err = metadata(dec)
			return err
		}
		e, err := parseEntry(dec)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		tensors[name] = e
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if rest := bytes.Trim(raw[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, nil, fmt.Errorf("%d bytes follow the JSON object of the header", len(rest))
	}
	return tensors, meta, nil
}

// object reads a JSON object; value reads the value of each name. Names may not repeat.
func object(dec *json.Decoder, value func(name string) error) error {
	open, err := dec.Token()
	if err != nil {
		return notJSON(err)
	}
	if open != json.Delim('{') {
		return fmt.Errorf("bad entry: %s where an object is wanted", shown(open))
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return notJSON(err)
		}
		name, ok := t.(string)
		if !ok {
			return fmt.Errorf("header is not JSON: %s where a name is wanted", shown(t))
		}
		if seen[name] {
			return fmt.Errorf("name %s appears twice in the header", shown(name))
		}
		seen[name] = true
		if err := value(name); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return notJSON(err)
	}
	return nil
}

func notJSON(err error) error { return fmt.Errorf("header is not JSON: %w", err) }

func metadata(dec *json.Decoder) (map[string]string, error) {
	meta := map[string]string{}
	err := object(dec, func(name string) (err error) {
		meta[name], err = text(dec, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", metadataKey, err)
	}
	return meta, nil
}

func parseEntry(dec *json.Decoder) (entry, error) {
	dtype, known := "", false
	var shape, offsets []int64
	err := object(dec, func(name string) (err error) {
		switch name {
		case "dtype":
			dtype, err = text(dec, name)
			known = true
		case "shape":
			shape, err = numbers(dec, name, maxRank)
		case "data_offsets":
			offsets, err = numbers(dec, name, 2)
		default:
			var other json.RawMessage
			if err = dec.Decode(&other); err != nil {
				err = fmt.Errorf("bad entry: %w", err)
			}
		}
		return err
	})
	if err != nil {
		return entry{}, err
	}
	if !known || shape == nil || len(offsets) != 2 {
		return entry{}, errors.New("an entry needs dtype, shape and two data_offsets")
	}
	return newEntry(dtype, shape, offsets[0], offsets[1])
}

func text(dec *json.Decoder, name string) (string, error) {
	t, err := dec.Token()
	if err != nil {
		return "", notJSON(err)
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("bad entry: %s is %s, want a string", shown(name), shown(t))
	}
	return s, nil
}

// numbers reads a list of at most most integers; an empty one is not nil.
func numbers(dec *json.Decoder, what string, most int) ([]int64, error) {
	out := []int64{}
	open, err := dec.Token()
	if err != nil {
		return nil, notJSON(err)
	}
	if open != json.Delim('[') {
		return nil, fmt.Errorf("bad entry: %s is %s, want a list", what, shown(open))
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		n, ok := t.(json.Number)
		v, err := n.Int64()
		switch {
		case !ok || err != nil:
			return nil, fmt.Errorf("bad entry: %s holds %s, want whole numbers", what, shown(t))
		case len(out) == most:
			return nil, fmt.Errorf("bad entry: %s has more than %d numbers", what, most)
		}
		out = append(out, v)
	}
	if _, err := dec.Token(); err != nil {
		return nil, notJSON(err)
	}
	return out, nil
}

func newEntry(dtype string, shape []int64, begin, end int64) (entry, error) {
	unit, ok := elementSize[dtype]
	if !ok {
		return entry{}, fmt.Errorf("unknown dtype %s", shown(dtype))
	}
	if begin < 0 || end < begin {
		return entry{}, fmt.Errorf("data_offsets [%d %d] are not in ascending order", begin, end)
	}
	want, err := byteSize(shape, unit)
	if err != nil {
		return entry{}, err
	}
	if end-begin != want {
		return entry{}, fmt.Errorf("%s%v needs %d bytes, but data_offsets [%d %d] hold %d", dtype, shape, want, begin,
			end, end-begin)
	}
	dims := make([]int, len(shape))
	for i, d := range shape {
		dims[i] = int(d)
	}
	return entry{dtype, dims, begin, end}, nil
}

func shown(t json.Token) string {
	s := fmt.Sprintf("%q", fmt.Sprint(t))
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}
