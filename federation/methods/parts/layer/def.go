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

// Sizes are those that formulas of communication are in: m, d, l, p and the discriminator's d2 of FedAPPR's table S6,
// whose d1 is d.
type Sizes struct{ Tokens, Width, Classes, Dim, Hidden int }

// Traffic is what papers say a client sends and gets in a round, both ways together, in numbers.
type Traffic struct {
	Formula string
	Numbers func(Sizes) int
	Over    string // the base method that a wrapper's formula is for; empty is promptfl
}

// PromptTraffic is one prompt each way (FedAPPR's table S6).
var PromptTraffic = Traffic{Formula: "m d 2", Numbers: func(s Sizes) int { return 2 * s.Tokens * s.Width }}

// Layer is a pointer to a struct of options: each an exported field with the tags config:"KEY" and help:"TEXT", and
// with defect:"VALUE" where that value reproduces a known defect of published code on purpose. Embedded structs of
// options have the tag config:",squash".
type Builder interface {
	// Build checks the options and gives the method; inner is the method to wrap, which a wrapper puts into its field
	// Method, and nil for a base method.
	Build(inner method.Method) (method.Method, error)
}

// Wrapper tells whether it works over another method.
func (d Def) Wrapper() bool {
	f, ok := reflect.TypeOf(d.New()).Elem().FieldByName("Method")
	return ok && f.Anonymous && f.Type == reflect.TypeFor[method.Method]()
}

// Numbers gives the formula of a method's communication in one round of one client, both ways, and its value; "" and 0
// where the papers give none.
func (d Def) Numbers(s Sizes) (formula string, numbers int) {
	if d.Traffic.Numbers == nil {
		return "", 0
	}
	return d.Traffic.Formula, d.Traffic.Numbers(s)
}

// Over is the base method that a wrapper is listed with.
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

func (d Def) OptionNames() []string {
	var out []string
	for _, o := range d.Options() {
		out = append(out, o.Name)
	}
	return out
}
