package methods_test

import (
	"strings"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
)

// fedBack are the names of a stack whose clients keep what they left out.
func fedBack(n methodtest.Names) methodtest.Names {
	return plus(n, methodtest.Names{}, of(n, "ef/e"), nil)
}

func init() {
	all := options{"share": 1.0}
	compressed := func(base string, with []string, o options, n methodtest.Names) methodtest.Case {
		return methodtest.Case{Name: base, With: append(with, "compress"), Options: o, Zero: options{"compress": all},
			Names: n, Noised: true}
	}
	rounded := func(n methodtest.Names) methodtest.Names {
		return drawing(n, nil, []string{"compress/uniform"}, nil)
	}
	cases = append(cases,
		compressed("promptfl", nil, short, fedBack(context)),
		compressed("promptfl", nil, with(short, options{"kind": "sign", "bucket": 4}), fedBack(context)),
		compressed("promptfl", nil, with(short, options{"kind": "quantise"}), rounded(context)),
		compressed("fedpha", nil, with(exactNull, options{"kind": "quantise", "feedback": "on"}),
			rounded(fedBack(two))),
		compressed("promptfl", []string{"scaffold"}, with(short, options{"share": 0.3}), fedBack(scaffolded(context))),
	)
	robust := methodtest.Case{Name: "promptfl", With: []string{"compress", "robust"}, Options: with(short,
		options{"robust": options{"kind": "median"}, "compress": options{"kind": "sign"}}),
		Zero: options{"robust": noRobust}, Names: fedBack(context), Noised: true}
	cases = append(cases, robust)
}

// What is compressed is no sum, which secure aggregation and noise on a sum need.
func TestCompressedIsNoSum(t *testing.T) {
	m, err := methods.Build("promptfl", []string{"compress"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := methods.Averages(m); err == nil || !strings.Contains(err.Error(), "compress needs each client's") {
		t.Errorf("%v", err)
	}
	if m, err = methods.Build("promptfl", []string{"compress"}, options{"share": 1.0}); err != nil || m.Codec() != nil {
		t.Errorf("%v, %v", m.Codec(), err)
	}
	if _, _, err := methods.Averages(m); err != nil {
		t.Error(err)
	}
	if _, err = methods.Build("promptfl", []string{"compress", "dp"}, nil); err == nil ||
		!strings.Contains(err.Error(), "compressed") {
		t.Errorf("%v", err)
	}
}
