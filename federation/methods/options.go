package methods

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"

	"promptfed/federation/configtags"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/oneline"
)

// HasOption reports whether a method or one of its wrappers has an option or the name option. Unknown methods have
// none.
func HasOption(name string, with []string, option string) bool {
	return slices.ContainsFunc(append([]string{name}, with...), func(n string) bool {
		d, err := Find(n)
		return err == nil && (n == option || slices.Contains(d.OptionNames(), option))
	})
}

// ShortOptions returns a copy of options in which files that they hold are their names and digests.
func ShortOptions(options map[string]any) map[string]any {
	out := maps.Clone(options)
	for k, v := range options {
		switch v := v.(type) {
		case map[string]any:
			out[k] = ShortOptions(v)
		case string:
			out[k] = layer.File(v).String()
		}
	}

	return out
}

// Files lists the files that options hold.
func Files(options map[string]any) (out []layer.File) {
	for _, k := range slices.Sorted(maps.Keys(options)) {
		switch v := options[k].(type) {
		case map[string]any:
			out = append(out, Files(v)...)
		case string:
			if f := layer.File(v); f.Embedded() {
				out = append(out, f)
			}
		}
	}

	return out
}

// FileName returns the name by which a configuration has a method's file: that in the file, or else that of its path.
func FileName(path string, content []byte) string {
	ext := filepath.Ext(path)
	return cmp.Or(fromfile.Name(content), strings.TrimSuffix(filepath.Base(path), ext)) + ext
}

// Called returns what people call a base method: the method of a file by the file's name.
func Called(name string, options map[string]any) string {
	for _, f := range Files(options) {
		if file, _, err := f.Content(); err == nil {
			return strings.TrimSuffix(file, filepath.Ext(file))
		}
	}
	return name
}

// EmbedFiles returns a copy of the options of a base method, in which every file that is a path is its content, as read
// returns it. It leaves alone what names a file of the program.
func EmbedFiles(name string, options map[string]any, read func(path string) ([]byte, error)) (map[string]any, error) {
	d, err := Find(name)
	if err != nil {
		return options, nil // an error elsewhere
	}

	for _, option := range configtags.Keys(reflect.ValueOf(d.Default)) {
		builtin, is := option.Value.Interface().(layer.File)
		if !is {
			continue
		}

		at, key := options, "options."+option.Name
		nested, _ := options[name].(map[string]any)
		below := nested[option.Name] != nil // as options.NAME.KEY
		if below {
			at, key = nested, "options."+name+"."+option.Name
		}

		path, ok := at[option.Name].(string)
		if f := layer.File(path); !ok || f == "" || f == builtin || f.Embedded() {
			continue
		}

		content, err := read(path)
		if err != nil {
			return nil, &configtags.KeyError{Key: key, Err: fmt.Errorf("options.%s: %w", option.Name, err)}
		}

		at = maps.Clone(at)
		at[option.Name] = string(layer.EmbedFile(FileName(path, content), content))
		if options = maps.Clone(options); below {
			options[name] = at
		} else {
			options = at
		}
	}

	return options, nil
}

// MergeOptions returns options with changes of them, in the form of Stack.Options. Either may have an option as a plain
// key or below the name of its layer. Where one of them is not valid, Resolve does not accept the result either.
func MergeOptions(name string, with []string, options, changes map[string]any) map[string]any {
	defs, _, err := decoded(name, with, nil)
	merged, e := byLayer(defs, options)
	changed, e2 := byLayer(defs, changes)
	if errors.Join(err, e, e2) != nil {
		out := map[string]any{}
		maps.Copy(out, options)
		maps.Copy(out, changes)
		return out
	}

	for i, values := range changed {
		maps.Copy(merged[i], values)
	}

	return joined(defs, merged)
}

// byLayer returns the options of each layer. A plain key belongs to the one layer that defines it; a map below a
// layer's name has options of that layer. The same option in both forms is an error.
func byLayer(stack []layer.Def, options map[string]any) ([]map[string]any, error) {
	own := make([]map[string]any, len(stack))
	for i := range own {
		own[i] = map[string]any{}
	}

	for _, key := range slices.Sorted(maps.Keys(options)) {
		if err := readable(key); err != nil {
			return nil, err
		}

		at := "options." + key
		if i := slices.IndexFunc(stack, func(d layer.Def) bool { return d.Name == key }); i >= 0 {
			nested, ok := options[key].(map[string]any)
			if !ok {
				return nil, configtags.KeyErrorf(at, "expected options of %s below it, such as %s", key,
					strings.Join(stack[i].OptionNames(), ", "))
			}

			for name, value := range nested {
				if err := readable(name); err != nil {
					return nil, err
				}
				if !slices.Contains(stack[i].OptionNames(), name) {
					return nil, configtags.KeyErrorf(at+"."+name, "unknown; the options of %s are %s", key,
						list(stack[i].OptionNames()))
				}
				if value == nil {
					return nil, noValue(at + "." + name)
				}
				own[i][name] = value
			}

			continue
		}

		if options[key] == nil {
			return nil, noValue(at)
		}

		var takers []int
		for i, e := range stack {
			if slices.Contains(e.OptionNames(), key) {
				takers = append(takers, i)
			}
		}

		switch len(takers) {
		case 1:
			name := stack[takers[0]].Name
			if nested, _ := options[name].(map[string]any); nested[key] != nil {
				return nil, &configtags.KeyError{Key: at, Err: fmt.Errorf("options.%[1]s and options.%[2]s.%[1]s are "+
					"the same option; give it once, as options.%[2]s.%[1]s", key, name)}
			}
			own[takers[0]][key] = options[key]
		case 0:
			var known, offered []string
			for _, e := range stack {
				offered = append(offered, e.OptionNames()...)
				known = append(known, e.Name+": "+list(e.OptionNames()))
			}
			if similar := configtags.Similar(key, offered); len(similar) > 0 {
				return nil, configtags.KeyErrorf(at, "unknown; did you mean %s?", configtags.Alternatives(similar))
			}
			return nil, configtags.KeyErrorf(at, "unknown; known options are %s", strings.Join(known, "; "))
		default:
			return nil, configtags.KeyErrorf(at, "more than one method or wrapper has it; write it under a name, such "+
				"as options.%s.%s", stack[takers[0]].Name, key)
		}
	}

	return own, nil
}

// decode sets the options of each layer.
func decode(stack []layer.Def, layers []any, options map[string]any) error {
	own, err := byLayer(stack, options)
	if err != nil {
		return err
	}

	for i, l := range layers {
		d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
			Result: l, TagName: "config", ErrorUnused: true, WeaklyTypedInput: true, ZeroFields: true,
			DecodeHook: exactNumbers})
		if err == nil {
			err = d.Decode(own[i])
		}

		if err != nil {
			full := "options." + stack[i].Name
			at := full + "."
			if i == 0 {
				at = "options."
			}
			if wrong := (*mapstructure.DecodeError)(nil); errors.As(err, &wrong) {
				return &configtags.KeyError{Key: full + "." + wrong.Name(),
					Err: fmt.Errorf("%s%s: %s", at, wrong.Name(), oneline.Error(wrong.Unwrap()))}
			}
			return &configtags.KeyError{Key: full,
				Err: fmt.Errorf("options of %s: %s", stack[i].Name, oneline.Error(err))}
		}

		configtags.DropEmptyLists(l)
	}

	return nil
}

func noValue(key string) error {
	return &configtags.KeyError{Key: key, Err: fmt.Errorf("%s has no value; give one or remove the line", key)}
}

// readable returns an error for a key that would break a one-line message.
func readable(key string) error {
	if strconv.Quote(key) != `"`+key+`"` {
		return configtags.KeyErrorf("options", "%.60q is not an option's name", key)
	}
	return nil
}

// exactNumbers returns an error for values that weak typing would change: 1.5 tokens, a rate that is no number, true.
func exactNumbers(from, to reflect.Type, value any) (any, error) {
	kind := to.Kind()
	if kind != reflect.Int && kind != reflect.Float64 {
		return value, nil
	}

	switch from.Kind() {
	case reflect.Slice, reflect.Map:
		return nil, errors.New("a list or a section is given where a number is expected")
	}

	switch typed := value.(type) {
	case bool:
		return nil, fmt.Errorf("%v is not a number", typed)
	case string:
		if kind == reflect.Int {
			n, err := strconv.Atoi(typed)
			if err != nil {
				return nil, fmt.Errorf("%q is not a whole number", typed)
			}
			return n, nil
		}
		f, err := strconv.ParseFloat(typed, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", typed)
		}
		value = f
	case float32:
		value = float64(typed)
	}

	f, ok := value.(float64)
	switch {
	case !ok:
		return value, nil
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, fmt.Errorf("%v is not a finite number", f)
	case kind == reflect.Int && (f != math.Trunc(f) || math.Abs(f) > 1<<53):
		return nil, fmt.Errorf("%v is not a whole number", f)
	}

	return value, nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "no options"
	}
	return strings.Join(names, ", ")
}
