package methods

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/method"
	"promptfed/federation/methods/adapters"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methods/image"
	"promptfed/federation/methods/multimodal"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/text/averaged"
	"promptfed/federation/methods/text/personalized"
	"promptfed/federation/methods/wrappers/calibration"
	"promptfed/federation/methods/wrappers/loss"
	"promptfed/federation/methods/wrappers/optimization"
	"promptfed/federation/methods/wrappers/personal"
	"promptfed/federation/methods/wrappers/robust"
	"promptfed/federation/methods/wrappers/uploads"
	"promptfed/runtime/convert"
)

// table lists base methods first, then wrappers, each sorted by name. Register adds to it.
var table = slices.SortedFunc(slices.Values(slices.Concat(averaged.Methods, personalized.Methods, multimodal.Methods,
	image.Methods, adapters.Methods, fromfile.Methods, personal.Methods, optimization.Methods, uploads.Methods,
	robust.Methods, loss.Methods, calibration.Methods)), order)

// Table lists base methods first, then wrappers, each sorted by name.
func Table() []layer.Def { return slices.Clone(table) }

var defName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// Register adds a method or a wrapper of another package to the table, in an init function of that package. It panics
// for a definition without a title or a paper, for a name that is taken or not valid, and for a Default that is no
// struct of options of a method.
func Register(def layer.Def) {
	if !defName.MatchString(def.Name) {
		panic(fmt.Sprintf("methods: %q cannot name a method; use lower-case letters, digits, _ and -", def.Name))
	}

	if _, err := Find(def.Name); err == nil {
		panic(fmt.Sprintf("methods: there are two methods %q", def.Name))
	}

	if def.Title == "" || def.Paper == "" {
		panic(fmt.Sprintf("methods: %s has no Title or no Paper", def.Name))
	}

	if t := reflect.TypeOf(def.Default); t == nil || t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("methods: Default of %s is %v; it must be a struct of options", def.Name, t))
	}

	_, builds := def.New().(layer.Builder)
	if _, is := def.Default.(method.Method); !is && !builds {
		panic(fmt.Sprintf("methods: Default of %s, a %T, must be a method, or have a function Build", def.Name,
			def.Default))
	}

	at, _ := slices.BinarySearchFunc(table, def, order)
	table = slices.Insert(table, at, def)
}

// order compares definitions: base methods first, then wrappers, each by name.
func order(a, b layer.Def) int {
	if a.Wrapper() != b.Wrapper() {
		if a.Wrapper() {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.Name, b.Name)
}

// Find returns the row of a name.
func Find(name string) (layer.Def, error) {
	i := slices.IndexFunc(table, func(d layer.Def) bool { return d.Name == name })
	if i < 0 {
		names := convert.Slice(table, func(d layer.Def) string { return d.Name })
		return layer.Def{}, fmt.Errorf("there is no method %q: %s", name, configtags.Suggest(name, names,
			"promptfed list methods and promptfed list wrappers show all"))
	}
	return table[i], nil
}
