package layer

import (
	"fmt"
	"reflect"

	"promptfed/federation/configtags"
	"promptfed/federation/method"
)

// Def defines a method or a wrapper: a row of the table.
type Def struct {
	Name  string // in configurations
	Title string // as its authors call it
	Paper string
	// New makes the layer with its default options. A struct with an embedded method.Method makes it a wrapper.
	New     func() Builder
	Traffic Traffic // zero where no paper gives a formula
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

// Builder is a pointer to a struct of options: each an exported field with the tags config:"KEY" and help:"TEXT", and
// with defect:"VALUE" where that value reproduces a known defect of published code on purpose. Embedded structs of
// options have the tag config:",squash".
type Builder interface {
	// Build checks the options and returns the method. A wrapper stores inner, the method that it wraps, in its field
	// Method; inner is nil for a base method.
	Build(inner method.Method) (method.Method, error)
}

// Wrapper reports whether d wraps another method.
func (d Def) Wrapper() bool {
	f, ok := reflect.TypeOf(d.New()).Elem().FieldByName("Method")
	return ok && f.Anonymous && f.Type == reflect.TypeFor[method.Method]()
}

// Numbers returns the formula of Traffic and its value; "" and 0 where the papers have none.
func (d Def) Numbers(s Sizes) (formula string, numbers int) {
	if d.Traffic.Numbers == nil {
		return "", 0
	}
	return d.Traffic.Formula, d.Traffic.Numbers(s)
}

// Over returns the base method that a wrapper's formula is for.
func (d Def) Over() string {
	if d.Traffic.Over != "" {
		return d.Traffic.Over
	}
	return "promptfl"
}

// Option is one setting of a method, for listings.
type Option struct {
	Name, Type, Default, Help string
}

// Options lists the settings of a definition with their defaults.
func (d Def) Options() []Option {
	var out []Option
	for _, k := range configtags.Keys(reflect.ValueOf(d.New()).Elem()) {
		out = append(out, Option{k.Name, k.Field.Type.String(), fmt.Sprint(k.Value.Interface()), k.Help})
	}
	return out
}

// OptionNames lists their names.
func (d Def) OptionNames() []string {
	var out []string
	for _, o := range d.Options() {
		out = append(out, o.Name)
	}
	return out
}
