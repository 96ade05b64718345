package configs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"promptfed/federation/configtags"
	"promptfed/federation/experiment"
)

// Loaded is a configuration that was read.
type Loaded struct {
	experiment.Config
	Notes []string // what was left out of the file, and why

	settings settings
}

// Open reads a file into a configuration that starts from defaults. sets are "key=value" from the command line; a value
// is YAML, so lists and maps may be given. The sections of a sweep file (see LoadSweep) are left out. Where the command
// line or the environment takes another method than the file, the file's options that it does not have are left out.
func Open(path string, sets []string) (Loaded, error) {
	f, err := read(path)
	if err != nil {
		return Loaded{Config: experiment.Defaults()}, err
	}
	return load(f, sets)
}

// Load is Open for those who need the configuration alone.
func Load(path string, sets []string) (experiment.Config, error) {
	l, err := Open(path, sets)
	return l.Config, err
}

// Text is Load of a text that came from elsewhere; name stands for it in errors.
func Text(name string, text []byte) (experiment.Config, error) {
	l, err := OpenText(name, text, nil)
	return l.Config, err
}

// OpenText is Open of a text that came from elsewhere; name stands for it in errors.
func OpenText(name string, text []byte, sets []string) (Loaded, error) {
	if len(text) > maxFile {
		return Loaded{Config: experiment.Defaults()}, fmt.Errorf("%s: larger than %d bytes, too large for a "+
			"configuration",
			name, maxFile)
	}
	f, err := parse(name, text)
	if err != nil {
		return Loaded{Config: experiment.Defaults()}, err
	}
	return load(f, sets)
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

// Check finds what is wrong with the configuration without opening anything, and says of each value where it came from.
func (l Loaded) Check() error { return l.settings.blame(check(l.Config)) }

// CheckWithoutData is Check for those who open no data set (experiment.Config.CheckWithoutData).
func (l Loaded) CheckWithoutData() error {
	return l.settings.blame(withMethod(l.Config, l.Config.CheckWithoutData()))
}

// Empty tells whether neither the file nor the environment nor the command line says anything.
func (l Loaded) Empty() bool { return len(l.settings.from) == 0 }

// Changed tells whether the command line or the environment sets a key.
func (l Loaded) Changed(key string) bool {
	return strings.HasPrefix(l.settings.from[key], "--set ") || strings.HasPrefix(l.settings.from[key], prefix)
}

// Blame says of an error about a key where its value came from. Other errors are left as they are.
func (l Loaded) Blame(err error) error {
	if err == nil || l.settings.keyOf(err) == "" {
		return err
	}
	return l.settings.blame(err)
}

// Into reads a file over the values that the struct out points to already has. Its tags "config" are the keys.
func Into(out any, path string, sets []string) error {
	f, err := read(path)
	if err != nil {
		return err
	}
	_, _, err = into(out, f, sets)
	return err
}

// IntoWith is Into for those who need no file: without a path, only the environment and sets change out.
func IntoWith(out any, path string, sets []string) error {
	if path != "" {
		return Into(out, path, sets)
	}
	_, _, err := into(out, parsed{}, sets)
	return err
}

func into(out any, f parsed, sets []string) (settings, []string, error) {
	s, err := layered(out, f, true)
	if err != nil {
		return s, nil, err
	}
	changes, err := s.parse(sets)
	if err != nil {
		return s, nil, err
	}
	if s, err = s.with(changes); err != nil {
		return s, nil, fmt.Errorf("--set %w", err)
	}
	s, notes := s.withoutOthersOptions(f, changes)
	return s, notes, s.decode(out)
}

// maxFile is the size of the largest configuration file, in bytes.
const maxFile = 4 << 20

// parsed is what a configuration file says.
type parsed struct {
	path  string
	keys  map[string]any
	lines map[string]int // of keys, dotted
}

// read gives the keys of a file.
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
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a folder; give a configuration file, or images with promptfed run --images %s",
			path, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes, too large for a configuration; is it another "+
			"file?", path, maxFile)
	}
	return text, nil
}

func parse(path string, text []byte) (parsed, error) {
	f := parsed{path: path, keys: map[string]any{}, lines: lines(text)}
	if err := yaml.Unmarshal(text, &f.keys); err != nil {
		if errors.As(err, new(*yaml.TypeError)) {
			return f, fmt.Errorf("%s: expected keys with values, as in name: first", path)
		}
		return f, fmt.Errorf("%s: %s", path, oneLine(err))
	}
	return f, f.unambiguous(text)
}

// unknown finds the first key that the struct has no field for.
func unknown(at string, m map[string]any, t reflect.Type) error {
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		f, ok := fields[key]
		if !ok {
			return &keyError{at + key, unknownKey(at+key, fields)}
		}
		values := []any{m[key]}
		names := []string{at + key}
		if list, isList := m[key].([]any); isList && f.Kind() == reflect.Slice {
			f, values, names = f.Elem(), list, nil
			for i := range list {
				names = append(names, fmt.Sprintf("%s%s[%d]", at, key, i))
			}
		}
		if f.Kind() != reflect.Struct || len(fieldsOf(f)) == 0 {
			continue
		}
		for i, value := range values {
			sub, isMap := value.(map[string]any)
			if !isMap {
				return &keyError{names[i], fmt.Errorf("%s: expected keys below it: %s", names[i],
					strings.Join(slices.Sorted(maps.Keys(fieldsOf(f))), ", "))}
			}
			if err := unknown(names[i]+".", sub, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func unknownKey(key string, fields map[string]reflect.Type) error {
	if now := experiment.NewName(key); now != "" {
		return fmt.Errorf("the key %s is now called %s", key, now)
	}
	return fmt.Errorf("unknown key %s; known here: %s", key, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
}

// fieldMaps are the maps of fieldsOf by type: each cell of a sweep asks for those of all sections.
var fieldMaps sync.Map

// fieldsOf maps keys to the types of a struct's fields; callers do not change it.
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

func oneLine(err error) string {
	var list []string
	for _, f := range strings.Split(err.Error(), "\n") {
		if f = strings.TrimSpace(f); f != "" {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		return "unreadable"
	}
	return strings.Join(list, " ")
}
