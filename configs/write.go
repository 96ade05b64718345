package configs

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
