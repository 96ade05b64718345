package methods

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
)

// Option is one setting of a method, for listings.
type Option struct {
	Name, Type, Default, Help string
}

// Options lists the settings of a row with their defaults.
func (e Entry) Options() []Option {
	return optionsOf(reflect.ValueOf(e.New()).Elem())
}

func optionsOf(v reflect.Value) []Option {
	var out []Option
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if key := f.Tag.Get("config"); key == ",squash" {
			out = append(out, optionsOf(v.Field(i))...)
		} else if key != "" {
			out = append(out, Option{key, f.Type.String(), fmt.Sprint(v.Field(i).Interface()), f.Tag.Get("help")})
		}
	}
	return out
}

func keys(e Entry) []string {
	var out []string
	for _, o := range e.Options() {
		out = append(out, o.Name)
	}
	return out
}

// decode gives each option to the layer that knows it: a plain key to the one layer that has it, a key that is a
// layer's name with a map under it to that layer.
func decode(stack []Entry, layers []layer, options map[string]any) error {
	own := make([]map[string]any, len(stack))
	for i := range own {
		own[i] = map[string]any{}
	}
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if i := slices.IndexFunc(stack, func(e Entry) bool { return e.Name == key }); i >= 0 {
			nested, ok := options[key].(map[string]any)
			if !ok {
				return fmt.Errorf("options.%s: expected settings of %s below it, such as %s", key, key, strings.Join(keys(stack[i]), ", "))
			}
			for k, v := range nested {
				if !slices.Contains(keys(stack[i]), k) {
					return fmt.Errorf("options.%s.%s: unknown; %s knows %s", key, k, key, list(keys(stack[i])))
				}
				own[i][k] = v
			}
			continue
		}
		var takers []int
		for i, e := range stack {
			if slices.Contains(keys(e), key) {
				takers = append(takers, i)
			}
		}
		switch len(takers) {
		case 1:
			own[takers[0]][key] = options[key]
		case 0:
			var known []string
			for _, e := range stack {
				known = append(known, e.Name+": "+list(keys(e)))
			}
			return fmt.Errorf("options.%s: unknown; known are %s", key, strings.Join(known, "; "))
		default:
			return fmt.Errorf("options.%s: more than one layer has it; write it under the layer's name, as options.%s.%s",
				key, stack[takers[0]].Name, key)
		}
	}
	for i, l := range layers {
		d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
			Result: l, TagName: "config", ErrorUnused: true, WeaklyTypedInput: true, ZeroFields: true})
		if err == nil {
			err = d.Decode(own[i])
		}
		if err != nil {
			return fmt.Errorf("options of %s: %s", stack[i].Name, strings.Join(strings.Fields(err.Error()), " "))
		}
	}
	return nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "no options"
	}
	return strings.Join(names, ", ")
}

// oneOf checks a word among the allowed ones.
func oneOf(option, value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("option %s is %q; it must be one of %s", option, value, strings.Join(allowed, ", "))
	}
	return nil
}

// positive checks a number.
func positive[T int | float64](option string, value T) error {
	if !(value > 0) {
		return fmt.Errorf("option %s is %v; it must be above 0", option, value)
	}
	return nil
}
