package record_test

import (
	"fmt"
	"testing"

	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
)

// reads is a method whose class scores read one thing beside the image.
type reads struct {
	method.Base
	what string
}

func (reads) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "ctx", Shape: []int{1}}, {Name: "own", Owner: method.Private, Shape: []int{1}}}
}

func (m reads) Logits(s *method.Scope) graph.Node {
	x := s.Cosine(s.Image(), s.HandText())
	switch m.what {
	case "shared":
		x = x.Mul(s.Param("ctx"))
	case "received":
		x = x.Mul(s.Received().Param("ctx"))
	case "private":
		x = x.Mul(s.Param("own"))
	case "state":
		x = x.Mul(s.State("kept", 1))
	case "server":
		x = x.Mul(s.Broadcast("extra", 1))
	case "examples":
		x = x.Mul(s.Input(method.MemoryImage, graph.Float, graph.Rows("N", s.Task().Dim)).Sum())
	case "classes":
		x = x.Mul(s.Input(method.LocalClassesInput, graph.Float, graph.Static(s.Task().Classes)))
	case "host":
		x = x.Mul(s.Host("h", method.HostFunc{}, []int{1}, s.Param("own")))
	}
	return x
}

// Scores that read what the server sends have a global evaluation, scores that read what a client has a personal one,
// and scores that read neither both. The inputs of a host function count.
func TestEvaluable(t *testing.T) {
	task := methodtest.ClientsOfOneBackbone(4)[0].Backbone.Task()
	task.Clients, task.Classes = 4, 4
	for what, want := range map[string]string{"shared": "true true [shared]", "received": "true true [shared]",
		"private": "false true [private]", "state": "false true [private]", "server": "true false [server]",
		"examples": "false true [examples]", "host": "false true [private]", "classes": "true true []",
		"": "true true []"} {
		e := record.EvaluableOf(reads{what: what}, task)
		if got := fmt.Sprint(e.Global, e.Personal, e.Reads); got != fmt.Sprint(want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}

type ownView struct{ method.Method }

func (ownView) View() method.View { return method.PersonalView }

// A view names an evaluation; of another one the method's own evaluation counts, or the only one that it has.
func TestHeadlineOfViews(t *testing.T) {
	if got := fmt.Sprint(record.Views()); got != "[method global personal]" {
		t.Error(got)
	}
	for _, c := range []struct {
		global, personal bool
		view             string
		want             method.View
	}{{true, true, "global", method.GlobalView}, {true, true, "personal", method.PersonalView},
		{true, true, "method", method.PersonalView},
		{true, false, "", method.GlobalView}, {false, true, "", method.PersonalView},
		{false, true, "global", method.GlobalView}, {true, false, "personal", method.PersonalView}} {
		e := record.Evaluable{Global: c.global, Personal: c.personal}
		if got := e.Headline(c.view, ownView{}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
