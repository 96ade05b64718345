package methods

import (
	"reflect"
	"slices"

	"promptfed/federation/method"
)

// Resolve gives every option of a stack with the value it has, in the form that Build reads: the carrier's as plain
// keys, a wrapper's below its name, and so for a carrier's key that a wrapper has too.
func Resolve(name string, with []string, options map[string]any) (map[string]any, error) {
	if _, err := Build(name, with, options); err != nil {
		return nil, err
	}
	var stack []Entry
	var layers []layer
	for _, n := range append([]string{name}, with...) {
		e, err := Find(n)
		if err != nil {
			return nil, err
		}
		stack, layers = append(stack, e), append(layers, e.New())
	}
	if err := decode(stack, layers, options); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for i, l := range layers {
		values := map[string]any{}
		valuesOf(reflect.ValueOf(l).Elem(), values)
		if len(values) == 0 {
			continue
		}
		if i > 0 {
			out[stack[i].Name] = values
			continue
		}
		for k, v := range values {
			if slices.ContainsFunc(stack[1:], func(e Entry) bool { return slices.Contains(keys(e), k) }) {
				if out[stack[0].Name] == nil {
					out[stack[0].Name] = map[string]any{}
				}
				out[stack[0].Name].(map[string]any)[k] = v
			} else {
				out[k] = v
			}
		}
	}
	return out, nil
}

func valuesOf(v reflect.Value, out map[string]any) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch key := f.Tag.Get("config"); {
		case key == ",squash":
			valuesOf(v.Field(i), out)
		case key != "":
			x := v.Field(i).Interface()
			if m, ok := x.(method.Moment); ok {
				x = string(m)
			}
			out[key] = x
		}
	}
}
