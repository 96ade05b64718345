package methods

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/text/averaged"
	"promptfed/federation/methods/text/personalized"
	"promptfed/federation/methods/wrappers/optimization"
	"promptfed/runtime/goldentest"
)

// A layer of a stack is named by its type, so a method's name is its type in lower case. SDFed is FedPHA with other
// defaults.
func TestNamesOfTheTable(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range table {
		if seen[d.Name] {
			t.Errorf("there are two methods %q", d.Name)
		}
		seen[d.Name] = true
		if name := reflect.TypeOf(d.Default).Name(); strings.ToLower(name) != d.Name && d.Name != "sdfed" {
			t.Errorf("the type of method %s is %s", d.Name, name)
		}
	}
}

// Each mistake of a definition is an error before anything is registered. A method needs no function Build.
func TestRegisterRefuses(t *testing.T) {
	sound := averaged.PromptFL{}
	before := slices.Clone(table)
	t.Cleanup(func() { table = before })
	for want, d := range map[string]layer.Def{
		`"" cannot name a method`:          {Title: "T", Paper: "P", Default: sound},
		`"My Method" cannot name a method`: {Name: "My Method", Title: "T", Paper: "P", Default: sound},
		`two methods "promptfl"`:           {Name: "promptfl", Title: "T", Paper: "P", Default: sound},
		"no Title":                         {Name: "mine", Paper: "P", Default: sound},
		"no Paper":                         {Name: "mine", Title: "T", Default: sound},
		"Default of mine is <nil>":         {Name: "mine", Title: "T", Paper: "P"},
		"must be a struct":                 {Name: "mine", Title: "T", Paper: "P", Default: &sound},
		"must be a method":                 {Name: "mine", Title: "T", Paper: "P", Default: struct{ Tokens int }{}},
		"<nil>":                            {Name: "sound", Title: "T", Paper: "P", Default: sound}, // no panic
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("%+v: %s; want %q", d, got, want)
				}
			}()
			Register(d)
		}()
	}
	if n := len(table) - len(before); n != 1 {
		t.Errorf("%d methods were registered", n)
	}
}

// hidesInner is a wrapper that keeps its wrapped method in an unexpected field. A search through the layers of a stack,
// as differential privacy does it, would miss that method.
type hidesInner struct{ method.Method }

func (*hidesInner) Build() (method.Method, error) {
	return optimization.FedProx{Method: personalized.CoOp{}}, nil
}

func TestWrapperMustShowWhatItWraps(t *testing.T) {
	d := layer.Def{Name: "hidesinner", Default: hidesInner{}}
	promptFL, _ := Find("promptfl")
	fedAPPR, _ := Find("fedappr")
	if !d.Wrapper() || promptFL.Wrapper() || fedAPPR.Wrapper() {
		t.Error("a wrapper embeds method.Method")
	}
	_, err := build(d, d.New(), averaged.PromptFL{})
	goldentest.WantError(t, err, "the field Method")
	err = decode([]layer.Def{d}, []any{d.New()}, map[string]any{"tokens": 4})
	goldentest.WantError(t, err, "known options are hidesinner: no options")
}
