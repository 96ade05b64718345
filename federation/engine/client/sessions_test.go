package client_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/runtime/ort"
)

// Runs with the caller's sessions have the results of runs with their own sessions, one after the other and with other
// options. They leave the sessions open: only the caller closes them.
func TestSessionsOfTheCaller(t *testing.T) {
	var sessions ort.Pool
	want := mustRun(t, toy(t), engine.Settings{}).Prompts
	for _, bind := range []bool{false, false, true} {
		set := engine.Settings{Client: client.Settings{Sessions: &sessions, Session: ort.Options{Bind: bind}}}
		if got := mustRun(t, toy(t), set).Prompts; !reflect.DeepEqual(got, want) {
			t.Errorf("with the caller's sessions, bound %v, it learns something else", bind)
		}
	}
	if err := sessions.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := engine.Run(context.Background(), toy(t), engine.Settings{Client: client.Settings{Sessions: &sessions}})
	if !errors.Is(err, ort.ErrClosed) {
		t.Errorf("with sessions that were closed: %v", err)
	}
}
