package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// fields reads one object of a configuration file. Every field must be asked for: done refuses those that are left,
// because an unknown field may change what is computed. The first failure is kept; a null counts as missing.
type fields struct {
	file, path string // for errors; path is empty or ends in "."
	m          map[string]any
	asked      map[string]bool
	err        *error
}

func fieldsOf(file string, m map[string]any) *fields {
	return &fields{file: file, m: m, asked: map[string]bool{}, err: new(error)}
}

func (f *fields) fail(format string, args ...any) {
	if *f.err == nil {
		*f.err = fmt.Errorf("%s: %s%w", f.file, f.path, fmt.Errorf(format, args...))
	}
}

// has tells whether a field is there and not null.
func (f *fields) has(key string) bool { return f.m[key] != nil }

// read is the value of a field, or def where it is missing. A value of another type is a failure.
func read[T int | float64 | string | bool](f *fields, key string, def T) T {
	f.asked[key] = true
	v, err := setting(f.m, key, def)
	if err != nil {
		f.fail("%w", err)
	}
	return v
}

// object reads an object; a missing one has no fields.
func (f *fields) object(key string) *fields {
	f.asked[key] = true
	m, ok := f.m[key].(map[string]any)
	if f.has(key) && !ok {
		f.fail("%s is %s, want an object", key, oneLine(fmt.Sprint(f.m[key])))
	}
	return &fields{file: f.file, path: f.path + key + ".", m: m, asked: map[string]bool{}, err: f.err}
}

// side is a field that may be written twice, once for each side of an image.
func (f *fields) side(key string) any {
	v := f.m[key]
	if pair, ok := v.([]any); ok && len(pair) == 2 && fmt.Sprint(pair[0]) == fmt.Sprint(pair[1]) {
		return pair[0]
	}
	return v
}

// same compares a number with what the weights say. A missing one has the default def; 0 stands for none.
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
		f.fail("%s is %s, but the weights say %d", key, oneLine(fmt.Sprint(v)), have)
	}
}

// only refuses values of a field that change what is computed in a way that is not supported.
func (f *fields) only(key string, allowed ...string) {
	f.asked[key] = true
	if v := fmt.Sprint(f.m[key]); f.has(key) && !slices.Contains(allowed, v) {
		f.fail("%s = %s is not supported, only %s: %s", key, oneLine(v), strings.Join(allowed, " or "), otherwise)
	}
}

// absent refuses a field of a tower that the weights are not.
func (f *fields) absent(key string) {
	f.asked[key] = true
	if f.has(key) {
		f.fail("%s = %s is not that of the weights, which are OpenCLIP's own", key, oneLine(fmt.Sprint(f.m[key])))
	}
}

// ignore names fields that change nothing of what is computed.
func (f *fields) ignore(keys ...string) {
	for _, k := range keys {
		f.asked[k] = true
	}
}

// done refuses the fields that nobody asked for, and gives the first failure.
func (f *fields) done() error {
	for _, k := range keys(f.m) {
		if !f.asked[k] {
			f.fail("%s = %s is unknown and may change what is computed: remove it if it does not, or %s", oneLine(k),
				oneLine(fmt.Sprint(f.m[k])), otherwise)
		}
	}
	return *f.err
}
