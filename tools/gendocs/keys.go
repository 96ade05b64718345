package main

import (
	"encoding/json"
	"reflect"
	"strings"

	"promptfed/federation/configtags"
)

// key is one key of a configuration, with its dotted name.
type key struct{ name, kind, value, help string }

// allKeys returns the keys of a configuration's struct with their values, including nested keys. The keys of the
// elements of a list are below NAME[].
func allKeys(config any) []key { return keysOf("", reflect.Indirect(reflect.ValueOf(config))) }

func keysOf(at string, v reflect.Value) []key {
	var out []key
	for _, k := range configtags.Keys(v) {
		name, x, t := at+k.Name, k.Value, k.Field.Type
		switch {
		case x.Kind() == reflect.Struct && len(configtags.Keys(x)) > 0:
			out = append(out, keysOf(name+".", x)...)
		case x.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			out = append(out, key{name, "list", "", k.Help})
			out = append(out, keysOf(name+"[].", reflect.Zero(t.Elem()))...)
		default:
			out = append(out, key{name, kind(t), value(x), k.Help})
		}
	}

	return out
}

// kind returns the name of a type for users of configuration files.
func kind(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.String:
		return "text"
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.Map, reflect.Interface, reflect.Struct: // a struct without tagged fields reads free keys
		return "keys"
	}

	return typ.String()
}

// value returns a default as YAML on one line, in the form of JSON, or "" if it is empty.
func value(v reflect.Value) string {
	if (v.Kind() == reflect.Slice || v.Kind() == reflect.Map || v.Kind() == reflect.String) && v.Len() == 0 ||
		v.Kind() == reflect.Struct && v.IsZero() {
		return ""
	}

	if v.Kind() == reflect.String {
		return v.String()
	}

	b, err := json.Marshal(v.Interface())
	if err != nil {
		return ""
	}

	return strings.ReplaceAll(string(b), ",", ", ")
}
