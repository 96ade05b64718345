// Package configtags reads the configuration keys of a struct: its fields that have a tag "config" and a help text.
package configtags

import "reflect"

// Key is one field that a configuration sets.
type Key struct {
	Name  string              // as the tag "config" has it
	Help  string              // one phrase: what the key means
	Field reflect.StructField // its type and its other tags
	Value reflect.Value       // what it holds
}

// LongHelp is implemented by structs that have keys whose help does not fit into a tag on one line.
type LongHelp interface {
	// LongHelp gives help texts by the names of the keys, whose fields have no tag "help".
	LongHelp() map[string]string
}

// Of lists the keys of a struct in the order of its fields. Those of a field with the tag `config:",squash"` take its
// place; fields without the tag "config" are passed over.
func Of(v reflect.Value) []Key {
	var out []Key
	var long map[string]string
	if l, ok := reflect.Zero(v.Type()).Interface().(LongHelp); ok {
		long = l.LongHelp()
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch name := f.Tag.Get("config"); name {
		case ",squash":
			out = append(out, Of(v.Field(i))...)
		case "":
		default:
			help, ok := f.Tag.Lookup("help")
			if !ok {
				help = long[name]
			}
			out = append(out, Key{Name: name, Help: help, Field: f, Value: v.Field(i)})
		}
	}
	return out
}

// Flatten gives the values of a configuration by dotted key, maps as they are.
func Flatten(c any) map[string]any {
	out := map[string]any{}
	flatten("", reflect.Indirect(reflect.ValueOf(c)), out)
	return out
}

func flatten(at string, v reflect.Value, out map[string]any) {
	for _, k := range Of(v) {
		if k.Value.Kind() == reflect.Struct {
			flatten(at+k.Name+".", k.Value, out)
		} else {
			out[at+k.Name] = k.Value.Interface()
		}
	}
}
