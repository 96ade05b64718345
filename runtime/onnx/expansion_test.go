package onnx_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
)

// levels is a model that calls a function, whose body is twice that of the next function, and so on.
func levels(n int, next func(level int) []*onnx.NodeProto) *onnx.ModelProto {
	m := model(18, of("own", node("F0", "x", "y")))
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: "own", Version: 1})
	for i := range n + 1 {
		body := []*onnx.NodeProto{node("Neg", "a", "b")}
		if i < n {
			body = next(i + 1)
		}
		m.Functions = append(m.Functions, &onnx.FunctionProto{Name: fmt.Sprint("F", i), Domain: "own",
			Input: []string{"a"}, Output: []string{"b"}, Node: body, OpsetImport: m.OpsetImport})
	}
	return m
}

func twice(level int) []*onnx.NodeProto {
	name := fmt.Sprint("F", level)
	return []*onnx.NodeProto{of("own", node(name, "a", "c")), of("own", node(name, "c", "b"))}
}

func once(level int) []*onnx.NodeProto { return twice(level)[1:] }

// branches calls a function outside of an If and in both of its branches.
func branches(level int) []*onnx.NodeProto {
	inner := of("own", node(fmt.Sprint("F", level), "a", "r"))
	return []*onnx.NodeProto{once(level)[0],
		node("If", "a", "b", subgraph("then_branch", inner), subgraph("else_branch", inner))}
}

// A file whose functions make too many nodes, or call themselves, is refused by every reader, before anything is
// expanded: with 30 or 60 doublings an expansion would not end. Graphs that are nested deeply are refused for ONNX
// Runtime alone; without it they may be 64 deep.
func TestExpansionIsRefused(t *testing.T) {
	dir := t.TempDir()
	loop := func(int) []*onnx.NodeProto { return twice(0) }
	uncalled := levels(30, twice)
	uncalled.Graph.Node = []*onnx.NodeProto{node("Neg", "x", "y")}
	inwards := levels(65, once) // each function is counted before those that call it
	inwards.Graph.Node = uncalled.Graph.Node
	slices.Reverse(inwards.Functions)
	large := levels(15, twice)
	large.Functions[15].Node[0].DocString = strings.Repeat("x", 1<<14) // 2^15 times
	for _, c := range []struct {
		m    *onnx.ModelProto
		want string
		runs bool // only ONNX Runtime cannot take it
	}{
		{levels(17, twice), "functions make more than 131072 operators", false},
		{levels(30, twice), "functions make more than 131072 operators", false},
		{levels(60, twice), "functions make more than 131072 operators", false},
		{large, "or 268435456 bytes of them", false},
		{uncalled, "functions make more than 131072 operators", false},
		{levels(64, once), "functions are nested more than 64 deep, or a function calls itself", false},
		{inwards, "functions are nested more than 64 deep, or a function calls itself", false},
		{levels(5000, once), "functions are nested more than 64 deep, or a function calls itself", false},
		{levels(2, loop), "functions are nested more than 64 deep, or a function calls itself", false},
		{levels(9, branches), "graphs are nested more than 8 deep", true}, // takes three times as long for each level
	} {
		b := onnxtest.Marshal(t, c.m)
		filetest.Write(t, dir+"/m.onnx", b)
		_, err := onnx.ReadFile(dir + "/m.onnx")
		goldentest.WantErrorOf(t, "a file", err, c.want)
		_, err = onnx.OpenFile(dir, "m.onnx")
		goldentest.WantErrorOf(t, "a file with its weights left in it", err, c.want)
		if err := onnx.Upgrade(c.m); !c.runs {
			goldentest.WantErrorOf(t, "a model", err, c.want)
		} else if err != nil {
			t.Error(err)
		}
	}
	for what, m := range map[string]*onnx.ModelProto{"15 doublings": levels(15, twice), "64 calls": levels(63, once),
		"branches, eight deep": levels(8, branches)} {
		if err := onnx.Check(m); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
