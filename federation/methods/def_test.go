package methods

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
)

func TestTableIsInOrder(t *testing.T) {
	if !slices.IsSortedFunc(table, order) {
		t.Errorf("base methods come first, then wrappers, each sorted by name: %q", names(nil))
	}
}

// bare is a layer without a pointer.
type bare struct{}

func (bare) Build(method.Method) (method.Method, error) { return PromptFL{}, nil }

// Each mistake of a definition is told before anything is registered.
func TestRegisterRefuses(t *testing.T) {
	sound := func() Layer { return &PromptFL{} }
	before := len(table)
	for want, d := range map[string]Def{
		`"" cannot name a method`:          {Title: "T", Paper: "P", New: sound},
		`"My Method" cannot name a method`: {Name: "My Method", Title: "T", Paper: "P", New: sound},
		`two methods "promptfl"`:           {Name: "promptfl", Title: "T", Paper: "P", New: sound},
		"no Title":                         {Name: "mine", Paper: "P", New: sound},
		"no Paper":                         {Name: "mine", Title: "T", New: sound},
		"no New":                           {Name: "mine", Title: "T", Paper: "P"},
		"pointer to a struct":              {Name: "mine", Title: "T", Paper: "P", New: func() Layer { return bare{} }},
		"New of mine gives <nil>":          {Name: "mine", Title: "T", Paper: "P", New: func() Layer { return nil }},
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
	if len(table) != before {
		t.Errorf("%d methods were registered", len(table)-before)
	}
}

// astray is a wrapper that keeps what it wraps where nobody finds it: whoever asks the layers of a stack what they
// need, as differential privacy does, would ask another method.
type astray struct{ method.Method }

func (astray) Build(method.Method) (method.Method, error) { return FedProx{Method: CoOp{}}, nil }

func TestWrapperMustShowWhatItWraps(t *testing.T) {
	d := Def{Name: "astray", New: func() Layer { return &astray{} }}
	if !d.Wrapper() || promptFLDef.Wrapper() || fedAPPRDef.Wrapper() {
		t.Error("a wrapper is what embeds method.Method")
	}
	if _, err := build(d, d.New(), PromptFL{}); err == nil || !strings.Contains(err.Error(), "its field Method") {
		t.Errorf("%v", err)
	}
}
