package configtags

import "reflect"

// Key is one field of a struct of the configuration, as a key that files and flags set.
type Key struct {
	Name  string              // the tag "config"
	Help  string              // the meaning of the key, in one phrase
	Field reflect.StructField // type and other tags
	Value reflect.Value       // the value of the field
}

// LongHelp is implemented by structs with keys whose help does not fit into a tag on one line.
type LongHelp interface {
	// LongHelp returns help texts by key; the fields of these keys have no tag "help".
	LongHelp() map[string]string
}

// Keys lists the keys of a struct in the order of its fields. The keys of a field with the tag `config:",squash"`
// replace that field; Keys skips fields without the tag "config".
func Keys(value reflect.Value) []Key {
	var out []Key
	var long map[string]string
	if l, ok := reflect.Zero(value.Type()).Interface().(LongHelp); ok {
		long = l.LongHelp()
	}

	for i := range value.NumField() {
		f := value.Type().Field(i)
		switch name := f.Tag.Get("config"); name {
		case ",squash":
			out = append(out, Keys(value.Field(i))...)
		case "":
		default:
			help, ok := f.Tag.Lookup("help")
			if !ok {
				help = long[name]
			}
			out = append(out, Key{Name: name, Help: help, Field: f, Value: value.Field(i)})
		}
	}

	return out
}

// Leaves lists the keys of a configuration that hold values, with dotted names, in the order of the fields. Keys below
// its sections are among them, the sections are not.
func Leaves(c any) []Key { return leaves(reflect.Indirect(reflect.ValueOf(c))) }

func leaves(section reflect.Value) (out []Key) {
	for _, key := range Keys(section) {
		if key.Value.Kind() != reflect.Struct || len(Keys(key.Value)) == 0 {
			out = append(out, key)
			continue
		}
		for _, below := range leaves(key.Value) {
			below.Name = key.Name + "." + below.Name
			out = append(out, below)
		}
	}
	return out
}

// DropEmptyLists makes the empty lists of a configuration nil: YAML writes a list that was not given as an empty one.
func DropEmptyLists(c any) {
	for _, leaf := range Leaves(c) {
		if leaf.Value.Kind() == reflect.Slice && leaf.Value.Len() == 0 {
			leaf.Value.SetZero()
		}
	}
}

// Flatten returns the values of Leaves by their names.
func Flatten(c any) map[string]any {
	out := map[string]any{}
	for _, key := range Leaves(c) {
		out[key.Name] = key.Value.Interface()
	}
	return out
}
