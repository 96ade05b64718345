package methods

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/convert"
)

// Stack is a base method inside its wrappers.
type Stack struct {
	Method method.Method
	// Options has the value of every option, in the form that Resolve reads: options of the base method as plain keys,
	// those of a wrapper below its name, and so those of the base method whose key a wrapper has too. It lacks an
	// option whose value is its tag "unset": then something else decides, such as the file of a method.
	Options map[string]any
}

// Build returns the method of the Stack that Resolve returns.
func Build(name string, with []string, options map[string]any) (method.Method, error) {
	s, err := Resolve(name, with, options)
	return s.Method, err
}

// Resolve builds a base method and wraps it, inner wrapper first. Each option goes to the layer that defines it.
func Resolve(name string, with []string, options map[string]any) (Stack, error) {
	defs, layers, err := decoded(name, with, options)
	if err != nil {
		return Stack{}, err
	}

	out := Stack{Options: joined(defs, convert.Slice(layers, valuesOf))}
	for i, l := range layers {
		if out.Method, err = build(defs[i], l, out.Method); err != nil {
			return Stack{}, ofLayer(defs[i].Name, err)
		}
		if i < len(layers)-1 && method.PropertiesOf(out.Method).Outermost {
			return Stack{},
				configtags.KeyErrorf("with", "%s must be the last wrapper; %s outside it would see the unprotected "+
					"uploads", defs[i].Name, defs[i+1].Name)
		}
	}

	return out, nil
}

// ofLayer adds the name of a layer to an error, and to the key of an option in it.
func ofLayer(name string, err error) error {
	named := fmt.Errorf("%s: %w", name, err)
	if option := configtags.KeyOf(err); option != "" {
		return &configtags.KeyError{Key: "options." + name + "." + option, Err: named}
	}
	return named
}

// build makes one layer around inner.
func build(d layer.Def, options any, inner method.Method) (method.Method, error) {
	m, err := d.Build(options, inner)
	if err != nil {
		return nil, err
	}
	return m, check.Join(checkRoles(m), checkCovered(m, inner))
}

// checkRoles returns an error where a layer inside has a role of the outermost layer.
func checkRoles(m method.Method) error {
	mine := method.PropertiesOf(m).Roles
	for _, role := range slices.Sorted(maps.Keys(mine)) {
		for other := range method.Layers(method.Unwrap(m)) {
			if giveUp, has := method.PropertiesOf(other).Roles[role]; has {
				ways := slices.DeleteFunc([]string{mine[role], giveUp}, func(s string) bool { return s == "" })
				if len(ways) == 0 {
					ways = []string{"keep one of the two"}
				}
				return fmt.Errorf("this wrapper and %s both %s; %s", layer.NameOf(other), role,
					strings.Join(ways, ", or "))
			}
		}
	}

	return nil
}

// checkCovered returns an error where layers inside upload more than the mean, which is all that noise of a layer that
// hides clients covers.
func checkCovered(m, inner method.Method) error {
	if !method.PropertiesOf(m).HidesClients {
		return nil
	}

	_, beside, err := AveragedUploads(inner)
	if err == nil && len(beside) > 0 {
		err = fmt.Errorf("a method inside also uploads %s", strings.Join(beside, ", "))
	} else if asked := StatisticNames(inner); err == nil && len(asked) > 0 {
		err = fmt.Errorf("clients also answer the statistics of %s", strings.Join(asked, ", "))
	}

	if err != nil {
		return fmt.Errorf("%w; that would leave the clients without clipping and noise", err)
	}

	return nil
}

// joined returns the options of all layers in the form of Stack.Options.
func joined(defs []layer.Def, own []map[string]any) map[string]any {
	out := map[string]any{}
	for i, values := range own {
		if i > 0 {
			if len(values) > 0 {
				out[defs[i].Name] = values
			}
			continue
		}

		for k, v := range values {
			if !slices.ContainsFunc(defs[1:], func(d layer.Def) bool { return slices.Contains(d.OptionNames(), k) }) {
				out[k] = v
				continue
			}
			if out[defs[0].Name] == nil {
				out[defs[0].Name] = map[string]any{}
			}
			out[defs[0].Name].(map[string]any)[k] = v
		}
	}

	return out
}

// valuesOf returns the options of a layer that are set.
func valuesOf(options any) map[string]any {
	out := map[string]any{}
	for _, k := range configtags.Keys(reflect.ValueOf(options).Elem()) {
		if unset, may := k.Field.Tag.Lookup("unset"); may && fmt.Sprint(k.Value) == unset {
			continue
		}
		out[k.Name] = k.Value.Interface()
		if k.Value.Kind() == reflect.String { // also of method.Frequency and layer.File
			out[k.Name] = k.Value.String()
		}
	}

	return out
}

// decoded returns the layers of a stack with their options.
func decoded(name string, with []string, options map[string]any) (stack []layer.Def, layers []any, err error) {
	for i, layerName := range append([]string{name}, with...) {
		def, err := Find(layerName)
		switch {
		case err != nil && i == 0:
			return nil, nil, configtags.KeyErrorf("method", "%w", err)
		case err != nil:
			return nil, nil, configtags.KeyErrorf("with", "%w", err)
		case i == 0 && def.Wrapper():
			return nil, nil, configtags.KeyErrorf("method", "%s is a wrapper; list it under with: and choose a base "+
				"method (promptfed list methods)", layerName)
		case i > 0 && !def.Wrapper():
			return nil, nil, configtags.KeyErrorf("with", "%s is not a wrapper (promptfed list wrappers)", layerName)
		case slices.ContainsFunc(stack, func(s layer.Def) bool { return s.Name == layerName }):
			return nil, nil, configtags.KeyErrorf("with", "%s is listed twice", layerName)
		}
		stack, layers = append(stack, def), append(layers, def.New())
	}

	return stack, layers, decode(stack, layers, options)
}
