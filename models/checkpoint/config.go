package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// bytes of a JSON file beside the weights; the largest is an index of shards, of some 200 kilobytes
const maxJSON = 8 << 20

// readJSON reads an object from a file of bounded size; numbers stay json.Number.
func readJSON(path string) (map[string]any, error) {
	f, size, err := openFile(path)
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
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("not a JSON object: %s", oneLine(err.Error()))
	}
	if m == nil {
		return nil, errors.New("not a JSON object: null")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("not a JSON object: text follows it")
	}
	return m, nil
}

// section is the object under key; empty when it is missing or null.
func section(m map[string]any, key string) map[string]any {
	s, _ := m[key].(map[string]any)
	return s
}

// setting reads an int, float, string or bool of a configuration; missing and null keep def, a wrong type is an error.
func setting[T int | float64 | string | bool](m map[string]any, key string, def T) (T, error) {
	v, ok := m[key]
	if !ok || v == nil {
		return def, nil
	}
	bad := fmt.Errorf("%s is %s, want a %T", key, oneLine(fmt.Sprint(v)), def)
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
