package client_test

import (
	"reflect"
	"testing"

	"promptfed/federation/engine"
	"promptfed/runtime/ort"
)

// A second run with equal graphs compiles none and has the same result.
func TestRunsShareGraphs(t *testing.T) {
	want := mustRun(t, toy(t), engine.Settings{}).Prompts
	before := ort.Cached()
	if got := mustRun(t, toy(t), engine.Settings{}).Prompts; !reflect.DeepEqual(got, want) {
		t.Error("a second run learns something else")
	}
	if after := ort.Cached(); after.Compiled != before.Compiled || after.Reused == before.Reused {
		t.Errorf("a second run compiled: %+v, before it %+v", after, before)
	}
}
