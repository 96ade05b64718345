package personal_test

import (
	"slices"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
)

// A private parameter starts on every client as the server would have sent it, drawn or set by the method's Start.
func TestPrivateParametersStartAsShared(t *testing.T) {
	for base, private := range map[string]string{"ivlp": "image/prompt", "fedclip": "adapter/2/w"} {
		before := methodtest.Traced(t, base, nil, nil, 1, methodtest.TwoEpochs)
		for _, wrapper := range []string{"fedper", "fedrep"} {
			after := methodtest.Traced(t, base, []string{wrapper}, methodtest.Options{"private": private}, 1,
				methodtest.TwoEpochs)
			for _, client := range []string{"r0/c0", "r0/c2"} {
				want, got := before["init/"+private], after[client+"/begin/"+private]
				if want.MaxAbs() == 0 || !slices.Equal(got.Data, want.Data) {
					t.Errorf("%s+%s: %s starts %s with other values than the server draws", base, wrapper, client,
						private)
				}
			}
			if after["init/"+private] != nil || after["r0/c0/upload/"+private] != nil {
				t.Errorf("%s+%s: %s travels", base, wrapper, private)
			}
		}
	}
}

// FedRep's first pass keeps shared parameters to the last bit, also with momentum and weight decay, and its second the
// private ones. A pass over batches of 4 of 9 examples has three steps.
func TestFedRepTrainsOnePartAtATime(t *testing.T) {
	for base, name := range map[string]struct{ shared, private string }{"ivlp": {"image/prompt", "text/prompt"},
		"fedmvp": {"former/ff/out/b", "former/o/b"}} { // FedMVP freezes parameters itself
		got := methodtest.Traced(t, base, []string{"fedrep"}, methodtest.Options{"private": name.private}, 1,
			methodtest.TwoEpochs)
		for _, c := range []struct {
			name, from, to string
			same           bool
		}{
			{name.shared, "begin", "s2/after", true}, {name.private, "begin", "s2/after", false},
			{name.shared, "s2/after", "s5/after", false}, {name.private, "s2/after", "s5/after", true},
		} {
			a, b := got["r0/c0/"+c.from+"/"+c.name], got["r0/c0/"+c.to+"/"+c.name]
			if slices.Equal(a.Data, b.Data) != c.same {
				t.Errorf("%s: %s from %s to %s stayed: %v", base, c.name, c.from, c.to, !c.same)
			}
		}
	}
}

// An upload of a turn that trained private parameters alone is refused; a client that trains for its own test has none.
func TestFedRepWithoutSharedPass(t *testing.T) {
	m := methodtest.Build(t, "ivlp", []string{"fedrep"}, methodtest.Options{"private": "image"})
	goldentest.WantError(t, m.Finish(&method.Local{}, &method.Upload{}), "trained private parameters only")
	goldentest.NoError(t, m.Finish(&method.Local{Alone: true}, &method.Upload{}))
}

func TestSplitsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		base    string
		with    []string
		options methodtest.Options
		want    string
	}{
		{"promptfl", []string{"fedper"}, methodtest.Options{"private": []string{}},
			"option private is empty; name what stays on clients, some of ctx"},
		{"promptfl", []string{"fedper"}, methodtest.Options{"private": "ctx"}, "leaves nothing of ctx to share"},
		{"cocoop", []string{"fedper"}, methodtest.Options{"private": "met"},
			`names "met"; the base method shares ctx, meta/1/w`},
		{"coop", []string{"fedrep"}, methodtest.Options{"private": "ctx"},
			`names "ctx"; the base method shares nothing`},
		{"ivlp", []string{"fedprox", "fedper"}, methodtest.Options{"private": "text"}, "list it before fedprox"},
		{"powder", []string{"fedper"}, methodtest.Options{"private": "pool/0"}, "needs more than the mean of uploads"},
		{"fedmgp", []string{"fedrep"}, methodtest.Options{"private": "text/global"}, "decide where clients start"},
	} {
		_, err := methods.Build(c.base, c.with, c.options)
		goldentest.WantErrorOf(t, c.base, err, c.want)
	}
	m := methodtest.Build(t, "cocoop", []string{"fedrep"}, methodtest.Options{"private": "ctx"})
	goldentest.WantError(t, m.Finish(&method.Local{}, nil), "all 1 passes over the data trained private parameters")
}
