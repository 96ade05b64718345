package configs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
)

// settings are the values of a configuration as nested maps, with their origins.
type settings struct {
	file  parsed
	known map[string]any // by dotted key, as from Flatten
	all   map[string]any
	from  map[string]origin // by dotted key
}

type change struct {
	key   string
	value any
	from  origin
}

// layered merges the defaults in out, a file and the environment.
func layered(out any, file parsed) (settings, error) {
	registry := viper.NewWithOptions(viper.KeyDelimiter("."))
	merged := settings{file: file, known: configtags.Flatten(out)}
	merged.from = file.origins(merged.known)
	if !file.still {
		if err := checkEnvironment(out); err != nil {
			return merged, err
		}
	}

	fields := fieldsOf(reflect.TypeOf(out).Elem())
	for _, key := range slices.Sorted(maps.Keys(file.keys)) { // viper ignores variables without a value
		if first, _, _ := strings.Cut(strings.ToLower(key), "."); fields[first] == nil {
			if first == "counts" {
				return merged, fmt.Errorf("%[1]s has sizes of data sets to compare (counts) and is not a run; use "+
					"promptfed partition %[1]s", file.path)
			}
			return merged, merged.blame(&configtags.KeyError{Key: strings.ToLower(key), Err: unknownKey("", key, fields,
				reflect.TypeOf(out).Elem())})
		}
	}

	if err := withValues("", file.keys, reflect.TypeOf(out).Elem()); err != nil {
		return merged, merged.blame(err)
	}

	for key, value := range merged.known {
		if reflect.ValueOf(value).Kind() == reflect.Map {
			continue // free keys: viper would replace the map of the file
		}
		registry.SetDefault(key, value)
		name, text := file.variable(key)
		if text == "" {
			continue
		}
		given := any(text)
		if reflect.ValueOf(value).Kind() == reflect.Slice {
			var err error
			if given, err = valueOf(name, text); err != nil {
				return merged, fmt.Errorf("%s=%s: %w", name, text, err)
			}
		}
		registry.Set(key, given)
	}

	keys := plain(file.keys).(map[string]any)
	if err := registry.MergeConfigMap(merged.renamed("", keys, ".", dotStandIn)); err != nil {
		return merged, fmt.Errorf("%s: %s", file.path, oneline.Error(err))
	}

	merged.all = merged.renamed("", registry.AllSettings(), dotStandIn, ".")
	return merged, nil
}

// dotStandIn replaces the dots in free keys, such as names of classes, at which viper would split them.
const dotStandIn = "\x00"

// renamed replaces a text in the free keys of nested maps. at is the section of the keys.
func (s settings) renamed(at string, keys map[string]any, old, replacement string) map[string]any {
	out := make(map[string]any, len(keys))
	for key, value := range keys {
		path := strings.TrimPrefix(at+"."+strings.ToLower(key), ".")
		if below, isMap := value.(map[string]any); isMap {
			value = s.renamed(path, below, old, replacement)
		}
		if at != "" && !s.section(at) {
			key = strings.ReplaceAll(key, old, replacement)
		}
		out[key] = value
	}

	return out
}

// parse parses changes "key=value" of the command line.
func (s settings) parse(sets []string) ([]change, error) {
	var out []change
	for _, set := range sets {
		key, text, ok := strings.Cut(set, "=")
		if !ok || slices.Contains(strings.Split(key, "."), "") {
			return nil, fmt.Errorf("--set %q: expected key=value", set)
		}

		value, err := valueOf(key, text)
		if err != nil {
			return nil, fmt.Errorf("--set %s: %w", set, err)
		}

		for _, c := range s.changes(key, value) {
			c.from = origin{typed: "--set " + set}
			out = append(out, c)
		}
	}

	return out, nil
}

// valueOf reads the YAML text of a key or of a variable.
func valueOf(name, text string) (value any, err error) {
	if err := scan([]byte(text), &value); err != nil {
		return nil, oneline.Error(err)
	}

	if value == nil {
		return nil, fmt.Errorf("the value is missing; for an empty text write '%s=\"\"' in a shell", name)
	}

	return plain(value), nil
}

// changedBy returns the settings after changes "key=value" of the command line, and these changes.
func (s settings) changedBy(sets []string) (settings, []change, error) {
	changes, err := s.parse(sets)
	if err != nil {
		return s, nil, err
	}

	changed, err := s.with(changes)
	if err != nil {
		err = fmt.Errorf("--set %w", err)
	}

	return changed, changes, err
}

// changes returns the changes that a value at a key makes: one, or one for every key below a section. A value of a key
// with free keys, such as options, replaces all of them. A key such as options.lengths[0,2] changes elements of a list.
func (s settings) changes(key string, value any) []change {
	key = strings.ToLower(key)
	if list, places, ok := inList(key); ok {
		return convert.Slice(places, func(p string) change {
			return change{key: list + "[" + strings.TrimSpace(p) + "]", value: value}
		})
	}

	m, isMap := plain(value).(map[string]any)
	if !isMap || !s.section(key) {
		return []change{{key: key, value: plain(value)}}
	}

	var out []change
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, s.changes(key+"."+k, m[k])...)
	}

	return out
}

// under returns changes of dotted or nested keys. Shorter keys come first.
func (s settings) under(set map[string]any) []change {
	var out []change
	for _, key := range slices.Sorted(maps.Keys(set)) {
		out = append(out, s.changes(key, set[key])...)
	}
	return out
}

// inList splits a key into the list and the indices in it.
func inList(key string) (list string, places []string, ok bool) {
	list, rest, _ := strings.Cut(key, "[")
	rest, ok = strings.CutSuffix(rest, "]")
	if !ok {
		return key, nil, false
	}
	return list, strings.Split(rest, ","), true
}

// section reports whether known keys are below key.
func (s settings) section(key string) bool {
	for k := range s.known {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// with returns the settings after some changes, in order.
func (s settings) with(changes []change) (settings, error) {
	s.all, s.from = plain(s.all).(map[string]any), maps.Clone(s.from)
	for _, change := range changes {
		maps.DeleteFunc(s.from, func(key string, _ origin) bool { return below(key, change.key) })
		s.from[change.key] = change.from
		key, places, isPlace := inList(change.key)
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
			at[last] = plain(change.value)
			continue
		}

		list := reflect.ValueOf(at[last])
		i, err := strconv.Atoi(places[0])
		switch {
		case list.Kind() != reflect.Slice:
			return s, fmt.Errorf("%s: the list %s has no value yet; set the whole list first", change.key, key)
		case err != nil || i < 0 || i >= list.Len():
			return s, fmt.Errorf("%s: no such index; the length of the list is %d, indices begin at "+
				"0", change.key, list.Len())
		}

		copied := make([]any, list.Len())
		for j := range copied {
			copied[j] = list.Index(j).Interface()
		}

		copied[i] = plain(change.value)
		at[last] = copied
	}

	return s, nil
}

// withoutOthersOptions removes the options of the file that the method and its wrappers do not have, if the command
// line or the environment names other ones than the file. It also returns a note about each removed option.
func (s settings) withoutOthersOptions(changes []change) (settings, []string) {
	options, ok := s.all["options"].(map[string]any)
	inFile := s.file.origins(nil)
	if !ok || s.from["method"] == inFile["method"] && s.from["with"] == inFile["with"] {
		return s, nil
	}

	now, before := experiment.Defaults(), experiment.Defaults()
	there := settings{known: s.known, all: map[string]any{}}
	for _, key := range []string{"method", "with"} {
		there.all[key] = plain(s.file.keys[key])
	}

	if s.decode(&now) != nil || there.decode(&before) != nil {
		return s, nil // the caller reports the error
	}

	own := func(key string) bool {
		return slices.ContainsFunc(changes, func(c change) bool {
			return c.key == "options" || c.key == "options."+key || below(c.key, "options."+key)
		})
	}

	var left []string
	kept := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if own(key) || methods.HasOption(now.Method, now.With, key) || !methods.HasOption(before.Method, before.With,
			key) {
			kept[key] = options[key]
		} else {
			left = append(left, key)
		}
	}

	if len(left) == 0 {
		return s, nil
	}

	s.all = maps.Clone(s.all)
	s.all["options"] = kept
	because := cmp.Or(s.from["method"], s.from["with"])
	return s, []string{fmt.Sprintf("%s drops the options of %s: %s", because, strings.Join(append([]string{
		before.Method}, before.With...), " with "), strings.Join(left, ", "))}
}

// forMethod is withoutOthersOptions for the base of a sweep and changes that come after its points.
func (s settings) forMethod(sets []string) (settings, []string, error) {
	changed, changes, err := s.changedBy(sets)
	if err != nil {
		return s, nil, err
	}

	changed, notes := changed.withoutOthersOptions(changes)
	if len(notes) > 0 {
		s.all = maps.Clone(s.all)
		s.all["options"] = changed.all["options"]
	}

	return s, notes, nil
}

// decode writes the settings into the struct that out points to.
func (s settings) decode(out any) error {
	if err := unknown(s.all, reflect.TypeOf(out).Elem()); err != nil {
		return s.blame(err)
	}

	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: out, TagName: "config",
		WeaklyTypedInput: true,
		ErrorUnused:      true, DecodeHook: mapstructure.ComposeDecodeHookFunc(backboneText, exact,
			mapstructure.StringToSliceHookFunc(","))})

	if err != nil {
		return err
	}

	if err := d.Decode(s.all); err != nil {
		return s.blame(decodeErrors(err))
	}

	configtags.DropEmptyLists(out)
	if c, ok := out.(*experiment.Config); ok && !s.file.foreign {
		c.Options, err = methods.EmbedFiles(c.Method, c.Options, func(path string) ([]byte, error) {
			return atomicfile.ReadAtMost(path, layer.MaxFile)
		})
		return s.blame(err)
	}

	return nil
}

// backboneText converts a backbone with keys to the text that bundle.ParseSpec reads.
func backboneText(from, to reflect.Type, value any) (any, error) {
	keys, ok := value.(map[string]any)
	if !ok || to.Kind() != reflect.String {
		return value, nil
	}

	var list []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch keys[key].(type) {
		case string, float64, int:
		default:
			return value, nil
		}
		if !slices.Contains([]string{"folder", "image", "name", "text", "variant", "logit_scale", "logit_bias"}, key) {
			return value, nil
		}
		list = append(list, fmt.Sprintf("%s=%v", key, keys[key]))
	}

	return strings.Join(list, ","), nil
}

// exact refuses conversions that weak typing allows: a fraction or a negative number for a whole number, true for 1, an
// empty text for 0 or false, and a fraction for a text. true may be a text. It refuses numbers that are not finite.
func exact(_, to reflect.Type, value any) (any, error) {
	kind := to.Kind()
	unsigned := kind >= reflect.Uint && kind <= reflect.Uint64
	whole := unsigned || kind >= reflect.Int && kind <= reflect.Int64
	truth, isTruth := value.(bool)
	f, fraction := value.(float64)
	text, isText := value.(string)
	large, isLarge := value.(uint64)
	switch {
	case kind == reflect.Float64 && notFinite(value):
		return nil, fmt.Errorf("%v is not a finite number", value)
	case kind == reflect.String && isTruth:
		return strconv.FormatBool(truth), nil
	case isTruth && (whole || kind == reflect.Float64), whole && !unsigned && isLarge && large > math.MaxInt64, whole &&
		fraction && (f != math.Trunc(f) || math.Abs(f) >= 1<<63), isText && strings.TrimSpace(text) == "" &&
		(whole || kind == reflect.Float64 || kind == reflect.Bool), isText && whole && ambiguous.MatchString(text),
		kind == reflect.String && fraction:
		return nil, errors.New(expected(to, value))
	case unsigned && strings.HasPrefix(fmt.Sprint(value), "-"):
		return nil, fmt.Errorf("%v is negative; it must be 0 or more", value)
	}

	return value, nil
}

// notFinite reports whether a number, or a text with one, is NaN or infinite.
func notFinite(value any) bool {
	number, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	return err == nil && (math.IsNaN(number) || math.IsInf(number, 0))
}

// plain copies maps and lists, and converts keys to text.
func plain(value any) any {
	switch typed := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(typed))
		for k, x := range typed {
			out[k] = plain(x)
		}
		return out
	case map[any]any:
		out := make(map[string]any, len(typed))
		for k, x := range typed {
			out[fmt.Sprint(k)] = plain(x)
		}
		return out
	case []any:
		return convert.Slice(typed, plain)
	}

	return value
}
