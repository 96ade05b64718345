package dasslimport

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
)

// File is a Dassl file, with its name for errors and comments.
type File struct {
	Name string
	Text []byte
}

const largest = 1 << 20 // bytes of a file; real files have a few thousand

// value is a setting's value and its source.
type value struct {
	is     any
	from   string
	hidden *value // overridden value of an earlier file
}

func (v value) String() string { return fmt.Sprintf("%s = %v", v.from, v.is) }

// read returns the values of all settings by yacs key. Later sources win, in the order of the Dassl code: flags, then
// files in their order, then flags that win over files, then keys at the end of the command line. The names of flags
// have no dashes.
func read(files []File) (keys, flags map[string]value, err error) {
	keys, flags = map[string]value{}, map[string]value{}
	last, scripts := map[string]value{}, 0
	for _, file := range files {
		if len(file.Text) > largest {
			return nil, nil, fmt.Errorf("%s: larger than %d bytes, too large for settings", file.Name, largest)
		}

		if isScript(file) {
			if scripts++; scripts > 1 {
				return nil, nil, fmt.Errorf("%s: a second script; give one, with the files that it reads", file.Name)
			}
			err = command(file, flags, last)
		} else {
			err = yacs(file, keys)
		}

		if err != nil {
			return nil, nil, err
		}
	}

	maps.Copy(keys, last)
	for _, s := range Settings() {
		if v, ok := flags[s.Flag]; ok && s.OverridesFiles && s.Flag != "" {
			if _, at := last[s.Dassl]; !at {
				keys[s.Dassl] = v
			}
		}
	}

	return keys, flags, nil
}

// Named returns the paths of the files that a script reads, in the order in which their code reads them; none for other
// files.
func Named(f File) (paths []string) {
	flags := map[string]value{}
	if !isScript(f) || command(f, flags, map[string]value{}) != nil { // Import reports the error
		return nil
	}

	for _, flag := range []string{"dataset_config_file", "config_file"} {
		if v, ok := flags[flag]; ok {
			paths = append(paths, fmt.Sprint(v.is))
		}
	}

	return paths
}

func isScript(f File) bool {
	ext := strings.ToLower(filepath.Ext(f.Name))
	return ext == ".sh" || ext != ".yaml" && ext != ".yml" && python.Match(f.Text)
}

// yacs reads the nested keys of a YAML file.
func yacs(file File, into map[string]value) error {
	var root yaml.Node
	if err := yaml.Unmarshal(file.Text, &root); err != nil {
		return fmt.Errorf("%s: %s", file.Name, oneline.Error(err))
	}

	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return fmt.Errorf("%s: expected a yacs file with keys and values, or a script with a python command", file.Name)
	}

	var walk func(at string, n *yaml.Node) error
	walk = func(at string, n *yaml.Node) error {
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, child := at+n.Content[i].Value, n.Content[i+1]
			place := fmt.Sprintf("%s:%d", file.Name, n.Content[i].Line)
			var parsed any
			switch {
			case child.Kind == yaml.MappingNode:
				if err := walk(name+".", child); err != nil {
					return err
				}
				continue
			case child.Kind == yaml.AliasNode:
				return fmt.Errorf("%s: %s: YAML aliases are not supported; write the value", place, name)
			}

			if err := child.Decode(&parsed); err != nil {
				return fmt.Errorf("%s: %s: %s", place, name, oneline.Error(err))
			}

			if s, ok := parsed.(string); ok && child.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
				parsed = literal(s)
			}

			now := value{is: parsed, from: place + " " + name}
			if had, ok := into[name]; ok && !reflect.DeepEqual(had.is, parsed) {
				now.hidden = &had
			}

			into[name] = now
		}

		return nil
	}

	return walk("", root.Content[0])
}

// literal parses a Python literal: True, None, tuples and numbers. Anything else is text.
func literal(text string) any {
	switch text {
	case "True":
		return true
	case "False":
		return false
	case "None", "":
		return ""
	}

	if strings.HasPrefix(text, "(") && strings.HasSuffix(text, ")") {
		text = "[" + strings.TrimSuffix(strings.TrimSpace(text[1:len(text)-1]), ",") + "]"
	}

	var v any
	if yaml.Unmarshal([]byte(text), &v) != nil || v == nil {
		return text
	}

	switch v.(type) {
	case int, float64, bool, []any:
		return v
	}

	return text
}

var (
	python     = regexp.MustCompile(`(?m)^\s*(?:[A-Z_0-9]+=\S*\s+)*python3?\s`)
	assignment = regexp.MustCompile(`^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(\S*|"[^"]*"|'[^']*')\s*(?:#.*)?$`)
	variable   = regexp.MustCompile(`\$\{?([A-Za-z_0-9@]+)\}?`)
	yacsKey    = regexp.MustCompile(`^[A-Z][A-Z0-9_]*(\.[A-Za-z0-9_]+)*$`)
)

// command reads the single python command of a shell script: flags, and keys with values at its end.
func command(file File, flags, last map[string]value) error {
	text := strings.ReplaceAll(strings.ReplaceAll(string(file.Text), "\r\n", "\n"), "\\\n", " ")
	set := map[string]string{}
	known := func(v string) string {
		if is, ok := set[variable.FindStringSubmatch(v)[1]]; ok {
			return is
		}
		return v
	}

	var line string
	for l := range strings.SplitSeq(text, "\n") {
		if m := assignment.FindStringSubmatch(l); m != nil {
			set[m[1]] = variable.ReplaceAllStringFunc(strings.Trim(m[2], `"'`), known)
		} else if python.MatchString(l) {
			if line != "" {
				return fmt.Errorf("%s: more than one python command; give a script with one", file.Name)
			}
			line = l
		}
	}

	if line == "" {
		return fmt.Errorf("%s: there is no python command in this script", file.Name)
	}

	line = variable.ReplaceAllStringFunc(line, known)
	if v := variable.FindString(line); v != "" {
		return fmt.Errorf("%s: the command's %s has no value in the script; write the value in its place", file.Name, v)
	}

	list, err := split(line)
	if err != nil {
		return fmt.Errorf("%s: %w", file.Name, err)
	}

	for len(list) > 0 && !strings.HasSuffix(list[0], ".py") {
		list = list[1:]
	}

	if len(list) == 0 {
		return fmt.Errorf("%s: the python command names no .py file", file.Name)
	}

	for i := 1; i < len(list); {
		name := list[i]
		flag, dashed := strings.CutPrefix(name, "--")
		flag, inline, has := strings.Cut(flag, "=")
		end := i + 1
		for end < len(list) && !strings.HasPrefix(list[end], "--") && !(dashed && yacsKey.MatchString(list[end]) &&
			strings.Contains(list[end], ".")) && (dashed || end < i+2) {
			end++
		}

		words := list[i+1 : end]
		from := file.Name + " " + name
		switch {
		case dashed && has:
			words = append([]string{inline}, words...)
		case !dashed && (!yacsKey.MatchString(name) || len(words) != 1):
			return fmt.Errorf("%s: %q is neither a flag nor a key with a value", file.Name, name)
		}

		all := convert.Slice(words, literal)
		var parsed any = all
		switch len(all) {
		case 0:
			parsed = true // a flag without a value
		case 1:
			parsed = all[0]
		}

		if dashed {
			flags[strings.ReplaceAll(flag, "-", "_")] = value{is: parsed, from: from}
		} else {
			last[name] = value{is: parsed, from: from}
		}

		i = end
	}

	return nil
}

var (
	word   = regexp.MustCompile(`^(?:"[^"]*"|'[^']*'|[^\s"'|>;&])+`)
	quotes = regexp.MustCompile(`"([^"]*)"|'([^']*)'`)
)

// split splits a command into words as a shell does, up to a comment, a pipe or another command.
func split(line string) (out []string, err error) {
	for {
		line = strings.TrimLeft(line, " \t\r")
		if line == "" || strings.ContainsRune("|>;&#", rune(line[0])) {
			return out, nil
		}
		w := word.FindString(line)
		if w == "" {
			return nil, errors.New("a quote in the command is not closed")
		}
		out = append(out, quotes.ReplaceAllString(w, "$1$2"))
		line = line[len(w):]
	}
}
