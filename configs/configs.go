// Package configs reads configuration files: flags beat the environment (PROMPTFED_TRAIN_LR=...), which beats the file,
// which beats the defaults. Unknown keys are errors. A sweep file is a configuration with a grid of changes to it.
// It is the only importer of viper.
package configs

import (
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"promptfed/federation/experiment"
)

// Load reads a file into a configuration that starts from defaults. sets are "key=value" from the command line; a value
// is YAML, so lists and maps may be given. The sections of a sweep file (see LoadSweep) are left out.
func Load(path string, sets []string) (experiment.Config, error) {
	file, err := read(path)
	if err != nil {
		return experiment.Defaults(), err
	}
	return load(path, file, sets)
}

// Text is Load of a text that came from elsewhere; name stands for it in errors.
func Text(name string, text []byte) (experiment.Config, error) {
	if len(text) > maxFile {
		return experiment.Defaults(), fmt.Errorf("%s: more than %d bytes, which no configuration has", name, maxFile)
	}
	file, err := parse(name, text)
	if err != nil {
		return experiment.Defaults(), err
	}
	return load(name, file, nil)
}

func load(path string, file map[string]any, sets []string) (experiment.Config, error) {
	c := experiment.Defaults()
	for _, section := range sectionNames() {
		delete(file, section)
	}
	return c, into(&c, path, file, sets)
}

// Into reads a file over the values that the struct out points to already has. Its tags "config" are the keys.
func Into(out any, path string, sets []string) error {
	file, err := read(path)
	if err != nil {
		return err
	}
	return into(out, path, file, sets)
}

func into(out any, path string, file map[string]any, sets []string) error {
	s, err := layered(out, path, file, true)
	if err != nil {
		return err
	}
	changes, err := s.parse(sets)
	if err != nil {
		return err
	}
	if s, err = s.with(changes); err != nil {
		return fmt.Errorf("--set %w", err)
	}
	return s.decode(out)
}

// maxFile is the size of the largest configuration file, in bytes.
const maxFile = 4 << 20

// read gives the keys of a file; no path is an empty file.
func read(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	return parse(path, text)
}

func readText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: more than %d bytes, which no configuration has; is it another file?", path, maxFile)
	}
	return text, nil
}

func parse(path string, text []byte) (map[string]any, error) {
	file := map[string]any{}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %s", path, oneLine(err))
	}
	return file, nil
}

// unknown finds the first key that the struct has no field for.
func unknown(at string, m map[string]any, t reflect.Type) error {
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		f, ok := fields[key]
		if !ok {
			return unknownKey(at+key, fields)
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
				return fmt.Errorf("%s: expected keys below it: %s", names[i],
					strings.Join(slices.Sorted(maps.Keys(fieldsOf(f))), ", "))
			}
			if err := unknown(names[i]+".", sub, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// renamed are keys that were called otherwise before; those that begin with a dot stand in several sections.
var renamed = map[string]string{"exam": "eval.sets and eval.sets_root", "exam.sets": "eval.sets",
	"exam.root": "eval.sets_root", "joint": "embed_dim",
	".drawn": ".generator"}

func unknownKey(key string, fields map[string]reflect.Type) error {
	last := max(0, strings.LastIndexByte(key, '.'))
	if now := renamed[strings.ToLower(key)]; now != "" {
		return fmt.Errorf("the key %s is now called %s", key, now)
	} else if now = renamed[strings.ToLower(key[last:])]; now != "" && last > 0 {
		return fmt.Errorf("the key %s is now called %s", key, key[:last]+now)
	}
	return fmt.Errorf("unknown key %s; known here: %s", key, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
}

// fieldsOf maps keys to the types of a struct's fields.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch key := f.Tag.Get("config"); {
		case strings.Contains(key, ",squash"):
			maps.Copy(out, fieldsOf(f.Type))
		case key != "":
			out[key] = f.Type
		}
	}
	return out
}

// Flatten gives the values of a configuration by dotted key, maps as they are.
func Flatten(c any) map[string]any {
	out := map[string]any{}
	flatten("", reflect.Indirect(reflect.ValueOf(c)), out)
	return out
}

func flatten(at string, v reflect.Value, out map[string]any) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := f.Tag.Get("config")
		switch {
		case strings.Contains(key, ",squash"):
			flatten(at, v.Field(i), out)
		case key == "":
		case f.Type.Kind() == reflect.Struct:
			flatten(at+key+".", v.Field(i), out)
		default:
			out[at+key] = v.Field(i).Interface()
		}
	}
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
