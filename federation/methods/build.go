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
)

// Build makes a base method, wraps it, inner wrapper first, and hands every option to the layer that knows it.
func Build(name string, with []string, options map[string]any) (method.Method, error) {
	stack, layers, err := decoded(name, with, options)
	if err != nil {
		return nil, err
	}
	var m method.Method
	for i, l := range layers {
		if m, err = build(stack[i], l, m); err != nil {
			return nil, fmt.Errorf("%s: %w", stack[i].Name, err)
		}
		if i < len(layers)-1 && method.PropertiesOf(m).Outermost {
			return nil, fmt.Errorf("with: %s must be the last wrapper; %s outside it would see the unprotected uploads",
				stack[i].Name, stack[i+1].Name)
		}
	}
	return m, nil
}

// build makes one layer around inner.
func build(d layer.Def, l layer.Builder, inner method.Method) (method.Method, error) {
	m, err := l.Build(inner)
	if err != nil {
		return nil, err
	}
	if d.Wrapper() && reflect.TypeOf(layer.Inside(m)) != reflect.TypeOf(inner) {
		return nil, fmt.Errorf("its Build must store the method that it wraps, %T, in its field Method, which holds %T",
			inner, layer.Inside(m))
	}
	return m, check.Join(checkRoles(m), checkCovered(m, inner))
}

// checkRoles refuses an outermost layer with a role that a layer inside has.
func checkRoles(m method.Method) error {
	mine := method.PropertiesOf(m).Roles
	for _, role := range slices.Sorted(maps.Keys(mine)) {
		for other := layer.Inside(m); other != nil; other = layer.Inside(other) {
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

// checkCovered refuses a layer that hides clients by noise on the mean over layers that upload more than the mean.
func checkCovered(m, inner method.Method) error {
	if !method.PropertiesOf(m).HidesClients {
		return nil
	}
	_, beside, err := Averages(inner)
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

// Resolve gives every option of a stack with the value it has, in the form that Build reads: the base method's as plain
// keys, a wrapper's below its name, and so for a base method's key that a wrapper has too.
func Resolve(name string, with []string, options map[string]any) (map[string]any, error) {
	if _, err := Build(name, with, options); err != nil {
		return nil, err
	}
	stack, layers, err := decoded(name, with, options)
	if err != nil {
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
			if slices.ContainsFunc(stack[1:], func(d layer.Def) bool { return slices.Contains(d.OptionNames(), k) }) {
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
	for _, k := range configtags.Keys(v) {
		x := k.Value.Interface()
		if m, ok := x.(method.Frequency); ok {
			x = string(m)
		}
		out[k.Name] = x
	}
}

// decoded finds the layers of a stack and gives them their options.
func decoded(name string, with []string, options map[string]any) (stack []layer.Def, layers []layer.Builder,
	err error) {
	yes, no := true, false
	for i, n := range append([]string{name}, with...) {
		d, err := Find(n)
		switch {
		case err != nil && i == 0:
			return nil, nil, fmt.Errorf("method: %w", err)
		case err != nil:
			return nil, nil, fmt.Errorf("with: %w", err)
		case i == 0 && d.Wrapper():
			return nil, nil, fmt.Errorf("method: %s is a wrapper; list it under with: and choose a base method, one "+
				"of %s", n, strings.Join(names(&no), ", "))
		case i > 0 && !d.Wrapper():
			return nil, nil, fmt.Errorf("with: %s is not a wrapper; wrappers are %s", n,
				strings.Join(names(&yes), ", "))
		case slices.ContainsFunc(stack, func(s layer.Def) bool { return s.Name == n }):
			return nil, nil, fmt.Errorf("with: %s is listed twice", n)
		}
		stack, layers = append(stack, d), append(layers, d.New())
	}
	return stack, layers, decode(stack, layers, options)
}
