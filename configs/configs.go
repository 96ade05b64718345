// Package configs reads configuration files: flags beat the environment (PROMPTFED_TRAIN_LR=...), which beats the file,
// which beats the defaults. Unknown keys are errors. It is the only importer of viper.
package configs

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"promptfed/federation/experiment"
)

// Load reads a file into a configuration that starts from defaults. sets are "key=value" from the command line; a value
// is YAML, so lists and maps may be given.
func Load(path string, sets []string) (experiment.Config, error) {
	c := experiment.Defaults()
	return c, Into(&c, path, sets)
}

// Into reads a file over the values that the struct out points to already has. Its tags "config" are the keys.
func Into(out any, path string, sets []string) error {
	v := viper.NewWithOptions(viper.KeyDelimiter("."))
	v.SetEnvPrefix("PROMPTFED")
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	known, whole := Flatten(out), map[string]map[string]any{}
	for key, value := range known {
		if reflect.ValueOf(value).Kind() == reflect.Map {
			continue // its keys are free; viper would let the whole map hide what the file says
		}
		v.SetDefault(key, value)
		if err := v.BindEnv(key); err != nil {
			return err
		}
	}
	if path != "" {
		v.SetConfigFile(path)
		v.SetConfigType("yaml")
		if err := v.ReadInConfig(); err != nil {
			return fmt.Errorf("%s: %s", path, oneLine(err))
		}
	}
	for _, s := range sets {
		key, text, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return fmt.Errorf("--set %q: expected key=value", s)
		}
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			return fmt.Errorf("--set %s: %s", key, oneLine(err))
		}
		if m, isMap := value.(map[string]any); isMap && known[key] != nil {
			whole[key] = m // replaces what the file has, where viper would mix the two
			continue
		}
		v.Set(key, value)
	}
	all := v.AllSettings()
	for key, m := range whole {
		path := strings.Split(key, ".")
		at := all
		for _, p := range path[:len(path)-1] {
			next, ok := at[p].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[p] = next
			}
			at = next
		}
		at[path[len(path)-1]] = m
	}
	if err := unknown("", all, reflect.TypeOf(out).Elem()); err != nil {
		if path != "" {
			return fmt.Errorf("%s: %w", path, err)
		}
		return err
	}
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: out, TagName: "config", WeaklyTypedInput: true,
		ErrorUnused: true, DecodeHook: mapstructure.StringToSliceHookFunc(",")})
	if err != nil {
		return err
	}
	if err := d.Decode(all); err != nil {
		return fmt.Errorf("%s: %s", path, oneLine(err))
	}
	return nil
}

// unknown finds the first key that the struct has no field for.
func unknown(at string, m map[string]any, t reflect.Type) error {
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		f, ok := fields[key]
		if !ok {
			return fmt.Errorf("unknown key %s%s; known here: %s", at, key, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		sub, isMap := m[key].(map[string]any)
		if f.Kind() == reflect.Struct {
			if !isMap {
				return fmt.Errorf("%s%s: expected keys below it: %s", at, key, strings.Join(slices.Sorted(maps.Keys(fieldsOf(f))), ", "))
			}
			if err := unknown(at+key+".", sub, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// fieldsOf maps keys to the types of a struct's fields.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch key := f.Tag.Get("config"); {
		case strings.Contains(key, ",squash"):
			maps.Copy(out, fieldsOf(f.Type))
		case key != "":
			out[key] = f.Type
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
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := f.Tag.Get("config")
		switch {
		case strings.Contains(key, ",squash"):
			flatten(at, v.Field(i), out)
		case key == "":
		case f.Type.Kind() == reflect.Struct:
			flatten(at+key+".", v.Field(i), out)
		default:
			out[at+key] = v.Field(i).Interface()
		}
	}
}

// YAML writes a configuration with every key, in the order of the struct's fields.
func YAML(c any) ([]byte, error) {
	n, err := node(reflect.Indirect(reflect.ValueOf(c)))
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(n)
}

// Map gives a configuration as nested maps, as a reader of its YAML sees it.
func Map(c any) (map[string]any, error) {
	text, err := YAML(c)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, yaml.Unmarshal(text, &out)
}

func node(v reflect.Value) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := f.Tag.Get("config")
		value := &yaml.Node{}
		var err error
		switch {
		case strings.Contains(key, ",squash"):
			if value, err = node(v.Field(i)); err != nil {
				return nil, err
			}
			n.Content = append(n.Content, value.Content...)
			continue
		case key == "":
			continue
		case f.Type.Kind() == reflect.Struct:
			value, err = node(v.Field(i))
		default:
			err = value.Encode(v.Field(i).Interface())
		}
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
	return n, nil
}

func oneLine(err error) string {
	var list []string
	for _, f := range strings.Split(err.Error(), "\n") {
		if f = strings.TrimSpace(f); f != "" {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		return errors.New("unreadable").Error()
	}
	return strings.Join(list, " ")
}
