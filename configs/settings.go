package configs

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// settings are the values of a configuration as nested maps, with the file they come from.
type settings struct {
	path  string
	known map[string]any // by dotted key, as Flatten gives them
	all   map[string]any
}

// change gives one key another value.
type change struct {
	key   string
	value any
}

// layered puts together the defaults that out holds, a file and, with env, the environment.
func layered(out any, path string, file map[string]any, env bool) (settings, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter("."))
	v.SetEnvPrefix("PROMPTFED")
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	s := settings{path: path, known: Flatten(out)}
	fields := fieldsOf(reflect.TypeOf(out).Elem())
	for _, key := range slices.Sorted(maps.Keys(file)) { // viper would pass over those without a value
		if first, _, _ := strings.Cut(strings.ToLower(key), "."); fields[first] == nil {
			if first == "counts" {
				return s, fmt.Errorf("%s: counts are sizes of data sets, which promptfed partition compares with the "+
					"data", path)
			}
			return s, fmt.Errorf("%s: %w", path, unknownKey(key, fields))
		}
	}
	for key, value := range s.known {
		if reflect.ValueOf(value).Kind() == reflect.Map {
			continue // its keys are free; viper would let the whole map hide what the file says
		}
		v.SetDefault(key, value)
		if !env {
			continue
		}
		if err := v.BindEnv(key); err != nil {
			return s, err
		}
	}
	if err := v.MergeConfigMap(file); err != nil {
		return s, fmt.Errorf("%s: %s", path, oneLine(err))
	}
	s.all = v.AllSettings()
	return s, nil
}

// parse reads changes of the form "key=value" from the command line.
func (s settings) parse(sets []string) ([]change, error) {
	var out []change
	for _, set := range sets {
		key, text, ok := strings.Cut(set, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--set %q: expected key=value", set)
		}
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			return nil, fmt.Errorf("--set %s: %s", key, oneLine(err))
		}
		out = append(out, s.changes(key, value)...)
	}
	return out, nil
}

// changes are those that a value makes at a key: one, or one for every key below it where key is a section. A value for
// a key with free keys, such as options, replaces all of them. A key such as options.lengths[0,2] changes places of a
// list.
func (s settings) changes(key string, value any) []change {
	key = strings.ToLower(key)
	if list, places, ok := inList(key); ok {
		var out []change
		for _, p := range places {
			out = append(out, change{list + "[" + strings.TrimSpace(p) + "]", value})
		}
		return out
	}
	m, isMap := plain(value).(map[string]any)
	if !isMap || !s.section(key) {
		return []change{{key, plain(value)}}
	}
	var out []change
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, s.changes(key+"."+k, m[k])...)
	}
	return out
}

// under are the changes of keys that are dotted or nested. The shorter of two keys comes first.
func (s settings) under(set map[string]any) []change {
	var out []change
	for _, key := range slices.Sorted(maps.Keys(set)) {
		out = append(out, s.changes(key, set[key])...)
	}
	return out
}

// inList takes the places in a list off a key that has some.
func inList(key string) (list string, places []string, ok bool) {
	list, rest, _ := strings.Cut(key, "[")
	rest, ok = strings.CutSuffix(rest, "]")
	if !ok {
		return key, nil, false
	}
	return list, strings.Split(rest, ","), true
}

// section tells whether key has known keys below it.
func (s settings) section(key string) bool {
	for k := range s.known {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// with gives the settings after some changes, one after the other.
func (s settings) with(changes []change) (settings, error) {
	s.all = plain(s.all).(map[string]any)
	for _, c := range changes {
		key, places, isPlace := inList(c.key)
		path := strings.Split(key, ".")
		at := s.all
		for _, p := range path[:len(path)-1] {
			next, ok := at[p].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[p] = next
			}
			at = next
		}
		last := path[len(path)-1]
		if !isPlace {
			at[last] = plain(c.value)
			continue
		}
		list := reflect.ValueOf(at[last])
		i, err := strconv.Atoi(places[0])
		switch {
		case list.Kind() != reflect.Slice:
			return s, fmt.Errorf("%s: there is no list %s; give the list first", c.key, key)
		case err != nil || i < 0 || i >= list.Len():
			return s, fmt.Errorf("%s: there is no such place; the list has %d, counted from 0", c.key, list.Len())
		}
		copied := make([]any, list.Len())
		for j := range copied {
			copied[j] = list.Index(j).Interface()
		}
		copied[i] = plain(c.value)
		at[last] = copied
	}
	return s, nil
}

// decode writes the settings into the struct that out points to.
func (s settings) decode(out any) error {
	at := ""
	if s.path != "" {
		at = s.path + ": "
	}
	if err := unknown("", s.all, reflect.TypeOf(out).Elem()); err != nil {
		return fmt.Errorf("%s%w", at, err)
	}
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: out, TagName: "config",
		WeaklyTypedInput: true,
		ErrorUnused:      true, DecodeHook: mapstructure.StringToSliceHookFunc(",")})
	if err != nil {
		return err
	}
	if err := d.Decode(s.all); err != nil {
		return fmt.Errorf("%s%s", at, oneLine(err))
	}
	return nil
}

// plain copies maps and lists, with text for keys.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = plain(x)
		}
		return out
	case map[any]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[fmt.Sprint(k)] = plain(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plain(x)
		}
		return out
	}
	return v
}
