package configs

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"promptfed/federation/configtags"
)

// YAML returns a configuration with every key, in the order of the fields of the struct.
func YAML(c any) ([]byte, error) {
	n, err := node(reflect.Indirect(reflect.ValueOf(c)))
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(n)
}

// ToMap returns a configuration as nested maps, as a reader of its YAML gets it.
func ToMap(c any) (map[string]any, error) {
	text, err := YAML(c)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, yaml.Unmarshal(text, &out)
}

func node(v reflect.Value) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range configtags.Keys(v) {
		value := &yaml.Node{}
		var err error
		if k.Value.Kind() == reflect.Struct {
			value, err = node(k.Value)
		} else {
			err = value.Encode(k.Value.Interface())
		}
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: k.Name}, value)
	}
	return n, nil
}
