package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"promptfed/runtime/oneline"
	"promptfed/runtime/safetensors"
)

// bytes of a JSON file beside the weights; the largest is an index of shards, of some 200 kilobytes
const maxJSON = 8 << 20

// readJSON reads an object from a file of bounded size; numbers stay json.Number.
func readJSON(path string) (map[string]any, error) {
	f, size, err := safetensors.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	if size > maxJSON {
		return nil, fmt.Errorf("%s: %d bytes is above the limit of %d for a JSON file", path, size, maxJSON)
	}

	b, err := io.ReadAll(io.LimitReader(f, maxJSON))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	m, err := parseJSON(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return m, nil
}

func parseJSON(b []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return nil, fmt.Errorf("not a JSON object: %s", oneline.Short(err.Error()))
	}

	if object == nil {
		return nil, errors.New("not a JSON object: null")
	}

	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("not a JSON object: text follows it")
	}

	return object, nil
}

// section returns the object under key; empty if it is missing or null.
func section(m map[string]any, key string) map[string]any {
	s, _ := m[key].(map[string]any)
	return s
}

// setting reads an int, float, string or bool of a configuration. A missing or null value is def; a wrong type is an
// error.
func setting[T int | float64 | string | bool](m map[string]any, key string, def T) (T, error) {
	v, ok := m[key]
	if !ok || v == nil {
		return def, nil
	}

	bad := fmt.Errorf("%s is %s, want a %T", key, oneline.Short(fmt.Sprint(v)), def)
	var out any = v
	if n, isNumber := v.(json.Number); isNumber {
		var err error
		switch any(def).(type) {
		case int:
			var i int64
			i, err = n.Int64()
			out = int(i)
		case float64:
			out, err = n.Float64()
		}
		if err != nil {
			return def, bad
		}
	}

	t, ok := out.(T)
	if !ok {
		return def, bad
	}

	return t, nil
}

func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// fields reads one object of a configuration file. Every field must be read: done refuses the other fields, because an
// unknown field may change the computation. The first failure is kept; null counts as missing.
type fields struct {
	file, path string // for errors; path is empty or ends in "."
	values     map[string]any
	asked      map[string]bool
	err        *error
}

func fieldsOf(file string, m map[string]any) *fields {
	return &fields{file: file, values: m, asked: map[string]bool{}, err: new(error)}
}

func (f *fields) fail(format string, args ...any) {
	if *f.err == nil {
		*f.err = fmt.Errorf("%s: %s%w", f.file, f.path, fmt.Errorf(format, args...))
	}
}

// has reports whether a field exists and is not null.
func (f *fields) has(key string) bool { return f.values[key] != nil }

// read returns the value of a field, or def if it is missing. A value of another type is a failure.
func read[T int | float64 | string | bool](f *fields, key string, def T) T {
	f.asked[key] = true
	v, err := setting(f.values, key, def)
	if err != nil {
		f.fail("%w", err)
	}
	return v
}

// object reads an object; a missing one has no fields.
func (f *fields) object(key string) *fields {
	f.asked[key] = true
	m, ok := f.values[key].(map[string]any)
	if f.has(key) && !ok {
		f.fail("%s is %s, want an object", key, oneline.Short(fmt.Sprint(f.values[key])))
	}
	return &fields{file: f.file, path: f.path + key + ".", values: m, asked: map[string]bool{}, err: f.err}
}

// side returns a field that may have two equal values, one for each side of an image.
func (f *fields) side(key string) any {
	v := f.values[key]
	if pair, ok := v.([]any); ok && len(pair) == 2 && fmt.Sprint(pair[0]) == fmt.Sprint(pair[1]) {
		return pair[0]
	}
	return v
}

// same compares a number with the value from the weights. A missing number means the default def; 0 means no default.
func (f *fields) same(key string, have, def int) {
	f.asked[key] = true
	v := f.side(key)
	if v == nil {
		if def != 0 && def != have {
			f.fail("%s is missing, which means %d, but the weights say %d", key, def, have)
		}
		return
	}

	if n, ok := v.(json.Number); !ok || n.String() != fmt.Sprint(have) {
		f.fail("%s is %s, but the weights say %d", key, oneline.Short(fmt.Sprint(v)), have)
	}
}

// only refuses unsupported values of a field that change the computation.
func (f *fields) only(key string, allowed ...string) {
	f.asked[key] = true
	if v := fmt.Sprint(f.values[key]); f.has(key) && !slices.Contains(allowed, v) {
		f.fail("%s = %s is not supported, only %s: %s", key, oneline.Short(v), strings.Join(allowed, " or "), otherwise)
	}
}

// absent refuses a field of a tower that does not belong to these weights.
func (f *fields) absent(key string) {
	f.asked[key] = true
	if f.has(key) {
		f.fail("%s = %s is not that of the weights, which are OpenCLIP's own", key,
			oneline.Short(fmt.Sprint(f.values[key])))
	}
}

// ignore marks fields that do not change the computation.
func (f *fields) ignore(keys ...string) {
	for _, k := range keys {
		f.asked[k] = true
	}
}

// done refuses the fields of objects of one file that were not read, and returns the first failure.
func done(list ...*fields) error {
	for _, f := range list {
		for _, k := range keys(f.values) {
			if !f.asked[k] {
				f.fail("%s = %s is unknown and may change what is computed: remove it if it does not, or %s",
					oneline.Short(k), oneline.Short(fmt.Sprint(f.values[k])), otherwise)
			}
		}
	}

	return *list[0].err
}
