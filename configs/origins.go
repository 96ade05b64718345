package configs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"go.yaml.in/yaml/v3"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/runtime/oneline"
)

// prefix is the prefix of environment variables: PROMPTFED_TRAIN_LR sets train.lr.
const prefix = "PROMPTFED_"

// variables lists the names of other variables, without the prefix. A name that ends with _ is a prefix of names.
var variables = []string{"MODELS", "TOKEN", "DEVICE_KERNELS", "CHROMIUM", "BROWSER", "TEST_"} // TEST_ for tests

// checkEnvironment returns an error about a variable that names no key of an experiment and none of out.
func checkEnvironment(out any) error {
	var known []string
	for _, c := range []any{experiment.Defaults(), out} {
		for key, value := range configtags.Flatten(c) {
			if reflect.ValueOf(value).Kind() != reflect.Map {
				known = append(known, strings.TrimPrefix(variable(key), prefix))
			}
		}
	}

	for _, pair := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(pair, "=")
		own, ok := strings.CutPrefix(name, prefix)
		if !ok || slices.Contains(known, own) || slices.ContainsFunc(variables, func(v string) bool {
			return own == v || strings.HasSuffix(v, "_") && strings.HasPrefix(own, v)
		}) {
			continue
		}

		if strings.HasPrefix(own, "OPTIONS_") {
			return fmt.Errorf("environment variable %s: options cannot be set by variables; use --set options.%s=VALUE",
				name, strings.ToLower(strings.TrimPrefix(own, "OPTIONS_")))
		}

		say := "docs/configuration.md lists the keys"
		if similar := configtags.Similar(own, known); len(similar) > 0 {
			say = "did you mean " + prefix + configtags.Alternatives(similar) + "?"
		}

		return fmt.Errorf("environment variable %s is unknown; unset it: %s", name, say)
	}

	return nil
}

func variable(key string) string { return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) }

// origin is where a value comes from; the zero value is a point of a sweep.
type origin struct {
	typed string // the flag or the variable, with its value
	file  string
	line  int
}

func (o origin) String() string {
	switch {
	case o.typed != "":
		return o.typed
	case o.line == 0:
		return o.file
	case o.file == "":
		return "line " + strconv.Itoa(o.line)
	}

	return o.file + ":" + strconv.Itoa(o.line)
}

// placedError is an error whose text names the origins of values.
type placedError struct {
	error
	at []origin
}

func (e *placedError) Unwrap() error { return e.error }

// placed adds an origin to an error.
func placed(o origin, err error) error {
	return &placedError{fmt.Errorf("%s: %w", o, err), []origin{o}}
}

// inFile reports whether an error names a file.
func inFile(err error) bool {
	p, ok := errors.AsType[*placedError](err)
	return ok && slices.ContainsFunc(p.at, func(o origin) bool { return o.file != "" })
}

// blame adds the origin of the value to each part of an error: a flag, a variable, or a line of the file. The result is
// one line.
func (s settings) blame(err error) error {
	if err == nil || errors.As(err, new(*placedError)) {
		return err
	}

	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if o := s.originOf(configtags.KeyOf(err)); o != (origin{}) {
			return placed(o, err)
		}
		return err
	}

	all := &placedError{}
	var texts []string
	for _, e := range many.Unwrap() {
		e = s.blame(e)
		texts = append(texts, oneline.Text(e.Error()))
		if p, ok := errors.AsType[*placedError](e); ok {
			all.at = append(all.at, p.at...)
		}
	}

	all.error = errors.New(strings.Join(texts, "; "))
	return all
}

// above returns the key above a key, or the list that contains it, or "" for a top-level key.
func above(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// short returns the key of an option without its method or wrapper, which a configuration may leave out.
func short(key string) string {
	if part := strings.Split(key, "."); len(part) == 3 && part[0] == "options" {
		return part[0] + "." + part[2]
	}
	return key
}

// originOf returns the origin of the value of a key, or that of the only key that was changed below it.
func (s settings) originOf(key string) origin {
	key = cmp.Or(s.changed(key), key)
	for k := key; k != ""; k = above(k) {
		for _, one := range []string{k, short(k)} {
			if from, ok := s.from[one]; ok {
				return cmp.Or(from, origin{file: s.file.path})
			}
		}
	}

	return origin{file: s.file.path}
}

// changed returns the only key of a section that a flag or a variable set. It returns "" for none or several.
func (s settings) changed(section string) string {
	one := ""
	for key, from := range s.from {
		if !below(key, section) || from.typed == "" {
			continue
		}
		if one != "" {
			return ""
		}
		one = key
	}

	return one
}

// origins returns the origins of all keys: places in the file, and the variables that override known keys.
func (f parsed) origins(known map[string]any) map[string]origin {
	out := map[string]origin{}
	for key, line := range f.lines {
		out[key] = origin{file: f.path, line: line}
	}

	for key, value := range known {
		if name, text := f.variable(key); text != "" && reflect.ValueOf(value).Kind() != reflect.Map {
			out[key] = origin{typed: name + "=" + text}
		}
	}

	return out
}

// decodeErrors returns errors about single keys in plain words.
func decodeErrors(err error) error {
	var all []error
	var walk func(err error)
	walk = func(err error) {
		switch wrapped := err.(type) {
		case *mapstructure.DecodeError:
			text := oneline.Text(wrapped.Unwrap().Error())
			if parse, ok := errors.AsType[*mapstructure.ParseError](wrapped.Unwrap()); ok {
				text = expected(parse.Expected.Type(), parse.Value)
			} else if other, ok := errors.AsType[*mapstructure.UnconvertibleTypeError](wrapped.Unwrap()); ok {
				text = expected(other.Expected.Type(), other.Value)
			}
			all = append(all, configtags.KeyErrorf(strings.ToLower(wrapped.Name()), "%s", text))
		case interface{ Unwrap() []error }:
			for _, one := range wrapped.Unwrap() {
				walk(one)
			}
		default:
			if inner := errors.Unwrap(err); inner != nil {
				walk(inner)
			} else {
				all = append(all, err)
			}
		}
	}

	walk(err)
	slices.SortStableFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(all...)
}

// expected returns the error of a value with the wrong type.
func expected(t reflect.Type, value any) string {
	kind := t.Kind()
	is := fmt.Sprintf("%q", fmt.Sprint(value))
	switch value.(type) {
	case nil:
		is = "no value"
	case []any, map[string]any:
		is = "a list or a section"
	}

	word := "another value"
	switch {
	case kind >= reflect.Uint && kind <= reflect.Uint64:
		word = "a whole number, 0 or more"
	case kind >= reflect.Int && kind <= reflect.Int64:
		word = "a whole number"
	case kind == reflect.Float64:
		word = "a number"
	case kind == reflect.Bool:
		word = "true or false"
	case kind == reflect.String:
		word = "text"
	case kind == reflect.Slice:
		word = "a list"
	case kind == reflect.Map, kind == reflect.Struct:
		word = "a section of keys"
	}

	return is + " is given where " + word + " is expected"
}

// ambiguous are whole numbers with a leading 0: YAML reads 010 as 8, and a text such as 007 loses its zeros.
var ambiguous = regexp.MustCompile(`^[-+]?0[0-9_]+$`)

// scan reads a short YAML text into out, with the checks of a file.
func scan(text []byte, out any) error { return (&parsed{lines: map[string]int{}}).scan(text, out) }

// scan reads a YAML text into out, and notes the line of every dotted key, for an alias that of the alias. It
// refuses a text with two readings: a repeated key, also in other capitals, or once dotted and once nested, because one
// value would hide the other; and a number with a leading 0. In sections of a sweep file and of a table of sizes, keys
// are case-sensitive, so that scan checks only numbers there.
func (f *parsed) scan(text []byte, out any) error {
	var root, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&root); err == io.EOF {
		return nil
	} else if err != nil || len(root.Content) == 0 {
		return err
	}

	if err := documents.Decode(&second); err != io.EOF {
		return placed(origin{file: f.path, line: second.Line}, cmp.Or(err, errors.New("a second document begins here, "+
			"which nothing reads; remove the line ---")))
	}

	exactKeys := append(sectionNames(), "counts")
	first := map[string]*yaml.Node{}
	var walk func(at string, n *yaml.Node, fold bool) error
	walk = func(at string, node *yaml.Node, fold bool) error {
		switch node.Kind {
		case yaml.ScalarNode:
			if node.Style == 0 && ambiguous.MatchString(node.Value) {
				return placed(origin{file: f.path, line: node.Line}, fmt.Errorf("%s begins with 0 and can be read in "+
					"several ways; write the number without it, or a text in quotes", node.Value))
			}
		case yaml.SequenceNode:
			for i, item := range node.Content {
				place := fmt.Sprintf("%s[%d]", at, i)
				f.lines[place] = item.Line
				if err := walk(place, item, fold); err != nil {
					return err
				}
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				key, fold := node.Content[i], fold && !(at == "" && slices.Contains(exactKeys, node.Content[i].Value))
				path := strings.TrimPrefix(at+"."+strings.ToLower(key.Value), ".")
				if had := first[path]; fold && had != nil && key.Value != "<<" {
					return placed(origin{file: f.path, line: key.Line}, fmt.Errorf("the key %s is given twice, as %s "+
						"in line %d too; keep one of the two", path, had.Value, had.Line))
				}
				first[path], f.lines[path] = key, key.Line
				if err := walk(path, node.Content[i+1], fold); err != nil {
					return err
				}
			}
		}

		return nil
	}

	if err := walk("", root.Content[0], true); err != nil {
		return err
	}

	return root.Decode(out)
}

// withValues refuses keys of a struct without a value, which would keep their defaults. A section or a map with free
// keys may be empty, for example if all its lines are comments.
func withValues(at string, m map[string]any, t reflect.Type) error {
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		field, ok := fields[strings.ToLower(key)]
		if !ok {
			continue // another check reports it
		}

		below, isMap := m[key].(map[string]any)
		isSection := field.Kind() == reflect.Struct || field.Kind() == reflect.Map
		if m[key] == nil && !isSection {
			return &configtags.KeyError{Key: strings.ToLower(at + key), Err: fmt.Errorf("%s has no value; give one or "+
				"remove the line", at+key)}
		}

		if field.Kind() == reflect.Struct && isMap {
			if err := withValues(at+key+".", below, field); err != nil {
				return err
			}
		}
	}

	return nil
}
