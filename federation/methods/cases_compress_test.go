package methods_test

import (
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
)

// withErrorFeedback returns the names of a stack whose clients keep their compression errors.
func withErrorFeedback(n methodtest.Names) methodtest.Names {
	return withWrapper(n, methodtest.Names{}, prefixed(n, "ef/e"), nil)
}

func init() {
	all := options{"share": 1.0}
	compressed := func(base string, with []string, o options, n methodtest.Names) methodtest.Case {
		return methodtest.Case{Name: base, With: append(with, "compress"), Options: o, Zero: options{"compress": all},
			Names: n, Noised: true}
	}
	rounded := func(n methodtest.Names) methodtest.Names {
		return withDraws(n, nil, []string{"compress/uniform"}, nil)
	}
	cases = append(cases,
		compressed("promptfl", nil, short, withErrorFeedback(context)),
		compressed("promptfl", nil, with(short, options{"kind": "sign", "bucket": 4}), withErrorFeedback(context)),
		compressed("promptfl", nil, with(short, options{"kind": "quantise"}), rounded(context)),
		compressed("fedpha", nil, with(exactNull, options{"kind": "quantise", "feedback": "on"}),
			rounded(withErrorFeedback(two))),
		compressed("promptfl", []string{"scaffold"}, with(short, options{"share": 0.3}),
			withErrorFeedback(scaffolded(context))),
	)
	robust := methodtest.Case{Name: "promptfl", With: []string{"compress", "robust"}, Options: with(short,
		options{"robust": options{"kind": "median"}, "compress": options{"kind": "sign"}}),
		Zero: options{"robust": noRobust}, Names: withErrorFeedback(context), Noised: true}
	cases = append(cases, robust)
}

// A compressed upload has no sum; secure aggregation and noise on a sum need one.
func TestCompressedIsNoSum(t *testing.T) {
	m := methodtest.Build(t, "promptfl", []string{"compress"}, nil)
	_, _, err := methods.AveragedUploads(m)
	goldentest.WantError(t, err, "compress needs each client's")
	if m = methodtest.Build(t, "promptfl", []string{"compress"}, options{"share": 1.0}); m.Codec() != nil {
		t.Errorf("%v", m.Codec())
	}
	if _, _, err := methods.AveragedUploads(m); err != nil {
		t.Error(err)
	}
	_, err = methods.Build("promptfl", []string{"compress", "dp"}, nil)
	goldentest.WantError(t, err, "compressed")
}
