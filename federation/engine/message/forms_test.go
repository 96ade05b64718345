package message_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/runtime/tensor"
)

// The instruction alone determines the possible contents of a reply. The expected lists are written by hand: for
// PromptFL's parameter and the extra uploads of a wrapper, for GGTPC's answers for two classes in three dimensions, and
// for the other kinds.
func TestForms(t *testing.T) {
	task := method.ClientSpec{Classes: 2, Clients: 3, Width: 4, Dim: 3, Scale: 1}
	sent := tensor.Map{"ctx": tensor.New(2, 4)}
	statistic := message.Instruction{Kind: message.Compute, Statistic: "ggtpc"}
	for _, c := range []struct {
		with    string
		options map[string]any
		o       message.Instruction
		want    string
	}{
		{"", nil, message.Instruction{Kind: message.Train}, "shared/ctx float32[2 4]"},
		{"", nil, message.Instruction{Kind: message.Train, Guarded: tensor.Specs{{Name: "guard/x", Int: true,
			Shape: []int{9}}}},
			"extra/guard/x int64[9]"},
		{"fedproto", nil, statistic, ""},
		{"ggtpc", nil, statistic, "extra/n float32[2 1] extra/mean float32[2 3] extra/cov float32[2 6]"},
		{"ggtpc", map[string]any{"stats": "lowrank", "rank": 2}, statistic,
			"extra/n float32[2 1] extra/mean float32[2 3] extra/factors float32[<=4 3]"},
		{"ggtpc", map[string]any{"stats": "lowrank", "rank": 9}, statistic,
			"extra/n float32[2 1] extra/mean float32[2 3] extra/factors float32[<=6 3]"},
		{"fednova", nil, message.Instruction{Kind: message.Train}, "extra/nova/a float32[1] shared/ctx float32[2 4]"},
		{"compress", map[string]any{"share": 0.25}, message.Instruction{Kind: message.Train}, // 2 of 8 numbers
			"packed/values float32[2] packed/bits int64[1]"},
		{"compress", map[string]any{"kind": "quantise", "bucket": 3}, message.Instruction{Kind: message.Compute}, ""},
		{"compress", map[string]any{"kind": "quantise", "bucket": 3}, message.Instruction{Kind: message.Train},
			"packed/values float32[3] packed/bits int64[1]"},
		{"", nil, message.Instruction{Kind: message.Test}, ""},
		{"", nil, message.Instruction{Kind: message.Test, Confusion: true},
			"statistics/global/confusion int64[<=4 3]? statistics/personal/confusion int64[<=4 3]?"},
		{"", nil, message.Instruction{Kind: message.Validate, Confusion: true}, ""},
		{"", nil, message.Instruction{Kind: message.Adapt, Confusion: true}, ""},
		{"", nil, message.Instruction{Kind: "end"}, ""},
	} {
		var with []string
		if c.with != "" {
			with = []string{c.with}
		}
		m := enginetest.Build(t, "promptfl", with, c.options)
		c.o.Shared, c.o.Codec = sent, m.Codec()
		forms := c.o.ReplySpecs(m, task)
		got := ""
		for i, f := range forms {
			got += fmt.Sprint(" "[:min(i, 1)], f.Name, " ", f, map[bool]string{true: "?"}[f.Optional])
		}
		if got != c.want {
			t.Errorf("%s, %s:\n%s\n%s", c.with, c.o.Kind, got, c.want)
		}
	}
}

// The terms of a loss have the same names for all sizes of the backbone, with all methods. A client may claim any sizes
// of its backbone: the possible upload is found without memory in proportion to these sizes.
func TestTermsOfAnyTask(t *testing.T) {
	absurd := method.ClientSpec{Classes: 1 << 20, Clients: 3, Width: 1 << 16, Dim: 1 << 16, Patches: 1 << 16,
		ImageSize: 1 << 14, VisionWidth: 1 << 16, VisionLayers: 1 << 10, VisionUnits: 1 << 16, Tokens: 1 << 16,
		TextLayers: 1 << 10, TextUnits: 1 << 16}
	sizes := func(width, layers int) method.ClientSpec {
		return method.ClientSpec{Client: 1, Clients: 4, Classes: 5, Width: width, Dim: width, Patches: 196, Scale: 9,
			ImageSize: 224, VisionWidth: width, VisionLayers: layers, VisionUnits: 4 * width, Tokens: 197,
			TextLayers: layers, TextUnits: 4 * width}
	}
	for _, e := range methods.Table() {
		name, with := e.Name, []string(nil)
		if e.Wrapper() {
			name, with = "promptfl", []string{e.Name}
		}
		m := enginetest.Build(t, name, with, nil)
		names := method.TermNames(m)
		for _, task := range []method.ClientSpec{sizes(16, 12), sizes(96, 13)} {
			s, _, loss := method.LossOf(m, task)
			terms, err := s.Built().Terms(loss)
			if err != nil || s.Graph().Err() != nil {
				t.Fatalf("%s: %v, %v", e.Name, err, s.Graph().Err())
			}
			if !slices.EqualFunc(terms, names, func(a method.Term, b string) bool { return a.Name == b }) {
				t.Errorf("%s: the terms %+v are not %v", e.Name, terms, names)
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		message.MaxEncodedSize(message.Instruction{Kind: message.Train, Codec: m.Codec()}.ReplySpecs(m, absurd))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("%s: %d bytes of memory", e.Name, used)
		}
	}
}
