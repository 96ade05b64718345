package methods

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"promptfed/federation/method"
)

// Def defines a method or a wrapper: a row of the table.
type Def struct {
	Name  string // in configurations
	Title string // as its authors call it
	Paper string
	// New makes the layer with its default options. A struct with an embedded method.Method makes it a wrapper.
	New     func() Layer
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

// promptTraffic is one prompt each way (FedAPPR's table S6).
var promptTraffic = Traffic{Formula: "m d 2", Numbers: func(s Sizes) int { return 2 * s.Tokens * s.Width }}

// Layer is a pointer to a struct of options: each an exported field with the tags config:"KEY" and help:"TEXT", and
// with defect:"VALUE" where that value reproduces a known defect of published code on purpose. Embedded structs of
// options have the tag config:",squash".
type Layer interface {
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
	return promptFLDef.Name
}

// Table lists base methods first, then wrappers, each sorted by name.
func Table() []Def { return slices.Clone(table) }

var defName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// Register adds a method or a wrapper of another package to the table, in an init function of that package. It panics
// where that is a mistake of the program: a name that is taken or none, no title, no paper, or a New that gives no
// pointer to a struct.
func Register(d Def) {
	if !defName.MatchString(d.Name) {
		panic(fmt.Sprintf("methods: %q cannot name a method; use lower-case letters, digits, _ and -", d.Name))
	}
	if _, err := Find(d.Name); err == nil {
		panic(fmt.Sprintf("methods: there are two methods %q", d.Name))
	}
	if d.Title == "" || d.Paper == "" || d.New == nil {
		panic(fmt.Sprintf("methods: %s has no Title, no Paper or no New", d.Name))
	}
	if t := reflect.TypeOf(d.New()); t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("methods: New of %s gives %v; it must be a pointer to a struct of options", d.Name, t))
	}
	at, _ := slices.BinarySearchFunc(table, d, order)
	table = slices.Insert(table, at, d)
}

// order is that of the table.
func order(a, b Def) int {
	if a.Wrapper() != b.Wrapper() {
		if a.Wrapper() {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.Name, b.Name)
}

// Find returns the row of a name.
func Find(name string) (Def, error) {
	i := slices.IndexFunc(table, func(d Def) bool { return d.Name == name })
	if i < 0 {
		return Def{}, fmt.Errorf("there is no method %q; there are %s", name, strings.Join(names(nil), ", "))
	}
	return table[i], nil
}

func names(wrapper *bool) []string {
	var out []string
	for _, d := range table {
		if wrapper == nil || d.Wrapper() == *wrapper {
			out = append(out, d.Name)
		}
	}
	return out
}
