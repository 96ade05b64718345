package checks

import (
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

func TestStepsOfTheTree(t *testing.T) { eachGoFile(t, true, nil, Steps) }

func TestStepsRule(t *testing.T) {
	long := strings.Repeat("x++\n", mostDense)
	cases := map[string]struct{ body, want string }{
		"short":            {long, ""},
		"dense":            {long + "x++\n", "x.go:3: 37 lines without a blank line between steps, at most 36"},
		"with steps":       {long + "\n" + long, ""},
		"second is dense":  {"x++\n\n" + long + "x++\n", "x.go:5: 37 lines"},
		"beside a literal": {long + "_ = []int{\n" + strings.Repeat("1,\n", 50) + "}\n", ""},
		"of":               {"of := x\n", "x.go:3: a variable is called of"},
		"of in a loop":     {"for _, of := range []int{x} { x = of }\n", "is called of"},
		"of in a function": {"_ = func(of int) {}\n", "is called of"},
		"field of":         {"_ = struct{ of int }{of: x}\n", ""},
		"declared":         {"var of = x\n", "is called of"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bad, err := Steps("x.go", []byte("package x\nfunc f(x int) {\n"+c.body+"}\n"))
			goldentest.NoError(t, err)
			expect(t, bad, c.want)
		})
	}
}
