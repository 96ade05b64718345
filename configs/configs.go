package configs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/oneline"
)

// Loaded is a configuration with the origins of its values.
type Loaded struct {
	experiment.Config
	Notes []string // options of the file that do not apply, with the reason

	settings settings
}

// Open reads the configuration in the file at path, over the defaults. sets are "key=value" from the command line; a
// value is YAML, so it may be a list or a map. Open ignores the sections of a sweep file (see LoadSweep). If the
// command line or the environment names another method than the file, Open ignores the options of the file that this
// method does not have.
func Open(path string, sets []string) (Loaded, error) {
	file, err := read(path)
	if err != nil {
		return Loaded{}, err
	}
	return load(file, sets)
}

// LoadRun reads the configuration of a finished run, of which only keys under runtime may change: the environment
// sets no others, and the caller checks sets.
func LoadRun(path string, sets []string) (experiment.Config, error) {
	file, err := read(path)
	if err != nil {
		return experiment.Config{}, err
	}

	file.finished = true
	l, err := load(file, sets)
	return l.Config, err
}

// ParseText reads a text from another machine, over the defaults: no file that its options name is read. name stands
// for the file in errors.
func ParseText(name string, text []byte) (experiment.Config, error) {
	file, err := parse(name, text)
	if err != nil {
		return experiment.Config{}, err
	}

	file.foreign = true
	l, err := load(file, nil)
	return l.Config, err
}

// OpenText is Open for a text; name stands for the file in errors.
func OpenText(name string, text []byte, sets []string) (Loaded, error) {
	file, err := parse(name, text)
	if err != nil {
		return Loaded{}, err
	}
	return load(file, sets)
}

func load(f parsed, sets []string) (Loaded, error) {
	l := Loaded{Config: experiment.Defaults()}
	for _, section := range sectionNames() {
		delete(f.keys, section)
	}
	var err error
	l.settings, l.Notes, err = into(&l.Config, f, sets)
	return l, err
}

// Check checks the configuration without opening any data. An error names the origin of the value.
func (l Loaded) Check() error { return l.settings.blame(check(l.Config)) }

// CheckWithoutData is Check for commands that open no data set (experiment.Config.CheckWithoutData).
func (l Loaded) CheckWithoutData() error {
	return l.settings.blame(withMethod(l.Config, l.Config.CheckWithoutData()))
}

// Empty reports whether the file, the environment and the command line set no key.
func (l Loaded) Empty() bool { return len(l.settings.from) == 0 }

// Changed reports whether the command line or the environment sets a key.
func (l Loaded) Changed(key string) bool {
	return l.settings.from[key].typed != ""
}

// WithOrigin adds the origin of a value to an error about its key. It returns other errors unchanged.
func (l Loaded) WithOrigin(err error) error {
	if err == nil || configtags.KeyOf(err) == "" {
		return err
	}
	return l.settings.blame(err)
}

// DecodeFile reads a file into the struct that out points to, over the values of the struct. The tags "config" of the
// struct are the keys.
func DecodeFile(out any, path string, sets []string) error {
	f, err := read(path)
	if err != nil {
		return err
	}
	_, _, err = into(out, f, sets)
	return err
}

// DecodeOptionalFile is DecodeFile with an optional file: for an empty path, only the environment and sets change out.
func DecodeOptionalFile(out any, path string, sets []string) error {
	if path != "" {
		return DecodeFile(out, path, sets)
	}
	_, _, err := into(out, parsed{}, sets)
	return err
}

func into(out any, file parsed, sets []string) (settings, []string, error) {
	merged, err := layered(out, file)
	if err != nil {
		return merged, nil, err
	}

	merged, changes, err := merged.changedBy(sets)
	if err != nil {
		return merged, nil, err
	}

	merged, notes := merged.withoutOthersOptions(changes)
	return merged, notes, merged.decode(out)
}

// maxFile is the size of the largest configuration file, in bytes.
const maxFile = 4 << 20

type parsed struct {
	path  string
	keys  map[string]any
	lines map[string]int // by dotted key
	// foreign is a text from another machine, which names no files of this one
	foreign bool
	// finished is the file of a run, of which the environment changes only the runtime
	finished bool
	// still is a file that the environment does not change
	still bool
}

// variable returns the environment variable that may set a key of the file, and its value; "" if none may.
func (f parsed) variable(key string) (name, value string) {
	if f.still || f.finished && !strings.HasPrefix(key, "runtime.") {
		return "", ""
	}
	return variable(key), os.Getenv(variable(key))
}

func read(path string) (parsed, error) {
	text, err := readText(path)
	if err != nil {
		return parsed{path: path}, err
	}
	return parse(path, text)
}

func readText(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("the name of the configuration is empty; give a file, or images with promptfed run " +
			"--images FOLDER")
	}

	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a folder; give a configuration file, or images with promptfed run --images %s",
			path, path)
	}

	return atomicfile.ReadAtMost(path, maxFile)
}

func parse(path string, text []byte) (parsed, error) {
	file := parsed{path: path, keys: map[string]any{}, lines: map[string]int{}}
	if len(text) > maxFile {
		return file, fmt.Errorf("%s: larger than %d bytes, too large for a configuration", path, maxFile)
	}

	if err := file.scan(text, &file.keys); err != nil {
		switch {
		case errors.As(err, new(*placedError)):
			return file, err
		case errors.As(err, new(*yaml.TypeError)):
			return file, fmt.Errorf("%s: expected keys with values, as in name: first", path)
		}
		return file, fmt.Errorf("%s: %s", path, oneline.Error(err))
	}

	return file, nil
}

// unknown returns an error about the first key that a struct does not have.
func unknown(m map[string]any, t reflect.Type) error { return unknownBelow("", m, t, t) }

// unknownBelow returns an error about the first key that the section at of root does not have. The section has type t.
func unknownBelow(at string, m map[string]any, t, root reflect.Type) error {
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		typ, ok := fields[key]
		if !ok {
			return &configtags.KeyError{Key: at + key, Err: unknownKey(at, key, fields, root)}
		}

		values := []any{m[key]}
		names := []string{at + key}
		if list, isList := m[key].([]any); isList && typ.Kind() == reflect.Slice {
			typ, values, names = typ.Elem(), list, nil
			for i := range list {
				names = append(names, fmt.Sprintf("%s%s[%d]", at, key, i))
			}
		}

		if typ.Kind() != reflect.Struct || len(fieldsOf(typ)) == 0 {
			continue
		}

		for i, value := range values {
			sub, isMap := value.(map[string]any)
			if !isMap {
				return configtags.KeyErrorf(names[i], "expected keys below it: %s",
					strings.Join(slices.Sorted(maps.Keys(fieldsOf(typ))), ", "))
			}
			if err := unknownBelow(names[i]+".", sub, typ, root); err != nil {
				return err
			}
		}
	}

	return nil
}

func unknownKey(at, key string, fields map[string]reflect.Type, root reflect.Type) error {
	here := slices.Sorted(maps.Keys(fields))
	known := slices.Sorted(maps.Keys(configtags.Flatten(reflect.Zero(root).Interface())))
	if similar := configtags.Similar(at+key, known); len(similar) > 0 {
		return fmt.Errorf("unknown key %s: did you mean %s?", at+key, configtags.Alternatives(similar))
	}
	return fmt.Errorf("unknown key %s; known here: %s", at+key, strings.Join(here, ", "))
}

// fieldMaps caches the results of fieldsOf by type: every cell of a sweep needs them.
var fieldMaps sync.Map

// fieldsOf maps keys to the types of the fields of a struct. Callers must not change the map.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if m, ok := fieldMaps.Load(t); ok {
		return m.(map[string]reflect.Type)
	}

	out := map[string]reflect.Type{}
	for _, k := range configtags.Keys(reflect.Zero(t)) {
		out[k.Name] = k.Field.Type
	}

	fieldMaps.Store(t, out)
	return out
}

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
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range configtags.Keys(v) {
		value := &yaml.Node{}
		var err error
		if key.Value.Kind() == reflect.Struct {
			value, err = node(key.Value)
		} else {
			err = value.Encode(key.Value.Interface())
		}
		if err != nil {
			return nil, err
		}
		mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key.Name}, value)
	}

	return mapping, nil
}
