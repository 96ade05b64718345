package uploads_test

import (
	"testing"

	"promptfed/federation/compression"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/wrappers/uploads"
	"promptfed/federation/methodtest"
)

type options = methodtest.Options

const lr, average, end0 = methodtest.HandLR, methodtest.EndMean, methodtest.End0

var slope0 = methodtest.Slope0

func compressed(o options) methodtest.HandExample {
	return methodtest.OverPromptFL("compress", o,
		map[string]float64{"r0/c0/upload/ctx": end0, "r0/merged/ctx": average})
}

var hands = []methodtest.HandExample{
	// Moves of at most 0.6 are 0.6 and -0.5625. Each client counts once, so their mean is 0.01875.
	{Method: "promptfl", With: []string{"dp"}, Options: options{"tokens": 1, "init_std": 0, "clip": 0.6, "noise": 0.0},
		LR: lr, Want: map[string]float64{
			"r0/c0/upload/ctx": 0.75, "r0/merged/ctx": 0.01875, "r1/c0/upload/ctx": 0.01875 - lr*slope0(0.01875)}},
	// From 0 client 0 ends at 0.75 and client 1 at -0.5625: one number is its own largest, and its sign times its
	// absolute value. Among the levels of its norm it is the highest.
	compressed(options{"share": 0.5}), compressed(options{"kind": "sign"}), compressed(options{"kind": "quantise"}),
	// A bucket of one number with one level is divided by 1 + min(1,1) = 2.
	{Method: "promptfl", With: []string{"compress"}, Options: options{"tokens": 1,
		"init_std": 0, "kind": "quantise", "feedback": "on", "levels": 1}, LR: lr,
		Want: map[string]float64{"r0/c0/upload/ctx": end0 / 2, "r1/c0/kept/ef/e/ctx": end0 / 2,
			"r0/merged/ctx": average / 2}},
}

// Feedback is on by itself for kinds that are biased; top-k of all numbers compresses nothing.
func TestCodec(t *testing.T) {
	for _, c := range []struct {
		options
		want compression.Codec
	}{
		{options{}, compression.Codec{Kind: "top-k", Share: 0.1, Levels: 7, Bucket: 512, Feedback: true}},
		{options{"feedback": "off", "levels": 3}, compression.Codec{Kind: "top-k", Share: 0.1, Levels: 3, Bucket: 512}},
		{options{"kind": "quantise"}, compression.Codec{Kind: "quantise", Share: 0.1, Levels: 7, Bucket: 512}},
		{options{"kind": "sign", "share": 1.0}, compression.Codec{Kind: "sign", Share: 1, Levels: 7, Bucket: 512,
			Feedback: true}},
		{options{"kind": "quantise", "feedback": "on"}, compression.Codec{Kind: "quantise", Share: 0.1, Levels: 7,
			Bucket: 512, Feedback: true}},
	} {
		m := methodtest.Build(t, "promptfl", []string{"compress"}, c.options)
		if got := m.Codec(); got != c.want || method.PropertiesOf(m).Needs == "" {
			t.Errorf("%v: %+v", c.options, got)
		}
	}
	m, err := methods.Build("promptfl", []string{"compress"}, options{"share": 1.0})
	if err != nil || m.Codec() != nil || method.PropertiesOf(m).Needs != "" {
		t.Errorf("all numbers: %+v, %v", m.Codec(), err)
	}
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, uploads.Methods, hands) }

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, uploads.Methods) }
