package layer

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/runtime/convert"
)

// Def defines a method or a wrapper: a row of the table.
type Def struct {
	Name  string // in configurations
	Title string // as its authors call it
	Paper string
	// Default is the method with its default options, a struct. Each option is an exported field with the tags
	// config:"KEY", help:"TEXT" and in:"VALUES" (see configtags.Key). Embedded structs of options have the tag
	// config:",squash". A struct with an embedded method.Method is a wrapper.
	Default any
	// Suits returns an error for a method that the wrapper cannot wrap; nil suits all.
	Suits   func(inner method.Method) error
	Traffic Traffic // zero where no paper gives a formula
}

// Checker is implemented by structs of options whose values depend on each other.
type Checker interface{ Check() error }

// Builder is implemented by pointers to structs of options that are not the method itself, or that prepare something.
type Builder interface {
	// Build returns the method of sound options, around the method in the field Method of a wrapper.
	Build() (method.Method, error)
}

// Sizes are the variables of the formulas of communication: m, d, l, p and d2 of FedAPPR's table S6, whose d1 is d.
type Sizes struct{ Tokens, Width, Classes, Dim, Hidden int }

// Traffic is the number of values that a client sends and receives in a round, by a paper's formula.
type Traffic struct {
	Formula string
	Numbers func(Sizes) int
	Over    string // the base method that a wrapper's formula is for; empty is promptfl
}

// PromptTraffic is one prompt each way (FedAPPR's table S6).
var PromptTraffic = Traffic{Formula: "m d 2", Numbers: func(s Sizes) int { return 2 * s.Tokens * s.Width }}

// Wrapper reports whether d wraps another method.
func (d Def) Wrapper() bool {
	f, ok := reflect.TypeOf(d.Default).FieldByName("Method")
	return ok && f.Type == reflect.TypeFor[method.Method]()
}

// New returns a pointer to a copy of the default options.
func (d Def) New() any {
	out := reflect.New(reflect.TypeOf(d.Default))
	out.Elem().Set(reflect.ValueOf(d.Default))
	return out.Interface()
}

// Build returns the method of options, a pointer from New, around inner for a wrapper.
func (d Def) Build(options any, inner method.Method) (method.Method, error) {
	value := reflect.ValueOf(options).Elem()
	if d.Wrapper() {
		value.FieldByName("Method").Set(reflect.ValueOf(inner))
	}

	err := checkOptions(value)
	if d.Suits != nil {
		err = check.Join(err, d.Suits(inner))
	}

	var base method.Method
	if b, ok := options.(Builder); !ok {
		base = value.Interface().(method.Method)
	} else if err == nil {
		base, err = b.Build()
	}

	if err == nil && d.Wrapper() && reflect.TypeOf(method.Unwrap(base)) != reflect.TypeOf(inner) {
		err = fmt.Errorf("its Build must keep the method that it wraps, %T, in the field Method, which holds %T", inner,
			method.Unwrap(base))
	}

	if err != nil {
		return nil, err
	}

	return base, checkLoss(base, inner)
}

// Option is one setting of a method, for listings.
type Option struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Help    string `json:"help"`
}

// Options lists the settings of a definition with their defaults.
func (d Def) Options() []Option {
	var out []Option
	for _, k := range configtags.Keys(reflect.ValueOf(d.Default)) {
		words := strings.Split(k.Field.Tag.Get("in"), "|")
		if missing := func(w string) bool { return !strings.Contains(k.Help, w) }; k.Value.Kind() == reflect.String &&
			slices.ContainsFunc(words, missing) {
			k.Help += ": " + strings.Join(words, ", ")
		}
		out = append(out, Option{k.Name, k.Field.Type.String(), fmt.Sprint(k.Value.Interface()), k.Help})
	}

	return out
}

// OptionNames lists their names.
func (d Def) OptionNames() []string {
	return convert.Slice(d.Options(), func(o Option) string { return o.Name })
}
