package configs

import (
	"cmp"
	"errors"
	"fmt"
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
)

// prefix is the prefix of environment variables: PROMPTFED_TRAIN_LR sets train.lr.
const prefix = "PROMPTFED_"

// variables lists the names of other variables, without the prefix. A name that ends with _ is a prefix of names.
var variables = []string{"MODELS", "TOKEN", "CHROMIUM", "BROWSER", "TEST_"} // TEST_ for tests

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

type keyError struct {
	key string
	err error
}

func (e *keyError) Error() string { return e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// leading returns the key at the start of a message.
var leading = regexp.MustCompile(`^([a-z][a-z0-9_]*(?:\.[a-z0-9_-]+|\[\d+\])*)(?:\.?:| is | of )`)

// ofOption returns the method and the option in a message of methods.Build.
var ofOption = regexp.MustCompile(`^([a-z0-9_-]+): option ([a-z0-9_]+) `)

// blame adds the origin of the value to each part of an error: a flag, a variable, or a line of the file. The result is
// one line.
func (s settings) blame(err error) error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range many.Unwrap() {
			if e = s.blame(e); e != nil {
				all = append(all, oneLine(e))
			}
		}
		return errors.New(strings.Join(all, "; "))
	}
	return fmt.Errorf("%s%w", s.origin(s.keyOf(err), oneLine(err)), err)
}

// keyOf returns the key of an error, or "".
func (s settings) keyOf(err error) string {
	text := oneLine(err)
	if k := (*keyError)(nil); errors.As(err, &k) {
		return k.key
	} else if m := leading.FindStringSubmatch(text); m != nil && (s.section(m[1]) || s.reaches(m[1])) {
		return m[1]
	} else if m := ofOption.FindStringSubmatch(text); m != nil && s.from["options."+m[2]] != "" {
		return "options." + m[2]
	} else if m != nil {
		return "options." + m[1] + "." + m[2]
	}
	return ""
}

// reaches reports whether a key is known, or below a known key with free keys.
func (s settings) reaches(key string) bool {
	for k := key; k != ""; k = above(k) {
		if _, ok := s.known[k]; ok {
			return true
		}
	}
	return false
}

// above returns the key above a key, or the list that contains it, or "" for a top-level key.
func above(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// origin returns the origin of the value of a key, with a separator. For a section, it returns the origin of the value
// that the text names.
func (s settings) origin(key, text string) string {
	if key != "" && s.section(key) {
		for _, word := range regexp.MustCompile(`[a-z][a-z0-9_]+`).FindAllString(strings.TrimPrefix(text, key), -1) {
			if s.from[key+"."+word] != "" {
				key += "." + word
				break
			}
		}
		if s.section(key) {
			key = cmp.Or(s.changed(key), key)
		}
	}
	if part := strings.Split(key, "."); len(part) == 3 && part[0] == "options" && s.from[key] == "" &&
		s.from["options."+part[2]] != "" { // option of a wrapper, with the short name of the wrapper
		key = "options." + part[2]
	}
	for k := key; k != ""; k = above(k) {
		if from, ok := s.from[k]; ok && from == "" {
			break // set by a sweep
		} else if ok {
			return from + ": "
		}
	}
	if s.path == "" {
		return ""
	}
	return s.path + ": "
}

// changed returns the only key of a section that a flag or a variable set. It returns "" for none or several.
func (s settings) changed(section string) string {
	one := ""
	for key, from := range s.from {
		if !below(key, section) || !strings.HasPrefix(from, "--set ") && !strings.HasPrefix(from, prefix) {
			continue
		}
		if one != "" {
			return ""
		}
		one = key
	}
	return one
}

func (f parsed) place(line int) string {
	if f.path == "" {
		return "line " + strconv.Itoa(line)
	}
	return f.path + ":" + strconv.Itoa(line)
}

// origins returns the origins of all keys: places in the file, and the variables that override them.
func (f parsed) origins(known map[string]any, env bool) map[string]string {
	out := map[string]string{}
	for key, line := range f.lines {
		out[key] = f.place(line)
	}
	if !env {
		return out
	}
	for key, value := range known {
		if text, ok := os.LookupEnv(variable(key)); ok && text != "" && reflect.ValueOf(value).Kind() != reflect.Map {
			out[key] = variable(key) + "=" + text
		}
	}
	return out
}

// decodeErrors returns errors about single keys in plain words.
func decodeErrors(err error) error {
	var all []error
	var walk func(err error)
	walk = func(err error) {
		switch e := err.(type) {
		case *mapstructure.DecodeError:
			key, text := strings.ToLower(e.Name()), ""
			var parse *mapstructure.ParseError
			var other *mapstructure.UnconvertibleTypeError
			switch {
			case errors.As(e.Unwrap(), &parse):
				text = expected(parse.Expected.Type(), parse.Value)
			case errors.As(e.Unwrap(), &other):
				text = expected(other.Expected.Type(), other.Value)
			default:
				text = oneLine(e.Unwrap())
			}
			all = append(all, &keyError{key, fmt.Errorf("%s: %s", key, text)})
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
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

// scan reads a YAML text into out, and notes the line of every dotted key, for an alias that of the alias. It
// refuses a text with two readings: a repeated key, also in other capitals, or once dotted and once nested, because one
// value would hide the other; and a number with a leading 0. In sections of a sweep file and of a table of sizes, keys
// are case-sensitive, so that scan checks only numbers there.
func (f *parsed) scan(text []byte, out any) error {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) == 0 {
		return err
	}
	exactKeys := append(sectionNames(), "counts")
	first := map[string]*yaml.Node{}
	var walk func(at string, n *yaml.Node, fold bool) error
	walk = func(at string, n *yaml.Node, fold bool) error {
		switch n.Kind {
		case yaml.ScalarNode:
			if n.Style == 0 && ambiguous.MatchString(n.Value) {
				return fmt.Errorf("%s: %s begins with 0 and can be read in several ways; write the number without it, "+
					"or a text in quotes", f.place(n.Line), n.Value)
			}
		case yaml.SequenceNode:
			for i, item := range n.Content {
				place := fmt.Sprintf("%s[%d]", at, i)
				f.lines[place] = item.Line
				if err := walk(place, item, fold); err != nil {
					return err
				}
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, fold := n.Content[i], fold && !(at == "" && slices.Contains(exactKeys, n.Content[i].Value))
				path := strings.TrimPrefix(at+"."+strings.ToLower(key.Value), ".")
				if had := first[path]; fold && had != nil && key.Value != "<<" {
					return fmt.Errorf("%s: the key %s is given twice, as %s in line %d too; keep one of the two",
						f.place(key.Line), path, had.Value, had.Line)
				}
				first[path], f.lines[path] = key, key.Line
				if err := walk(path, n.Content[i+1], fold); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk("", root.Content[0], true); err != nil {
		return &placedError{err}
	}
	return root.Decode(out)
}

type placedError struct{ error }

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
			return &keyError{strings.ToLower(at + key), fmt.Errorf("%s has no value; give one or remove the line",
				at+key)}
		}
		if field.Kind() == reflect.Struct && isMap {
			if err := withValues(at+key+".", below, field); err != nil {
				return err
			}
		}
	}
	return nil
}
