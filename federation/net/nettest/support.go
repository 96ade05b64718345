package nettest

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Stack is a method with wrappers and options.
type Stack struct {
	Method  string
	With    []string
	Options map[string]any
}

// Method is a stack of a base method, wrappers and options.
func Method(name string, with []string, options map[string]any) Stack {
	return Stack{name, with, options}
}

// FedPHA is a stack with private parameters.
var FedPHA = Stack{"fedpha", nil, map[string]any{"global_tokens": 3, "local_tokens": []int{2, 4},
	"projector": "exact-null"}}

// Experiment is an experiment on four toy clients.
func (s Stack) Experiment(t testing.TB) *spec.Experiment {
	t.Helper()
	m := enginetest.Build(t, s.Method, s.With, s.Options)
	return &spec.Experiment{Name: "toy", MethodName: strings.Join(append([]string{s.Method}, s.With...), "+"),
		Options: fmt.Sprint(s.Options),
		Method:  m, Classes: methodtest.Classes, Template: "a {}.", Clients: methodtest.ClientsOfOneBackbone(9, 5, 6,
			3), Training: spec.Training{Epochs: 2, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9}},
		Plan: spec.Plan{Rounds: 3, TestEvery: 1, Seed: 5, Participation: 0.75}}
}

// Logs collects the logs of both sides.
type Logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Logger returns a logger that writes all levels to l, as lines of text.
func (l *Logs) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Marshal returns the bytes of a message.
func Marshal(t testing.TB, m protobuf.Message) []byte {
	t.Helper()
	b, err := protobuf.Marshal(m)
	goldentest.NoError(t, err)
	return b
}

// BytesOf returns tensors as an encoded message, to compare them bit by bit.
func BytesOf(t testing.TB, m tensor.Map) string {
	t.Helper()
	b, err := message.EncodeTensors(m)
	goldentest.NoError(t, err)
	return string(b)
}

// WithoutTimes returns records as JSON, after it set their measured times to 0 in place, to compare runs on different
// machines.
func WithoutTimes(t testing.TB, records []record.Record) string {
	t.Helper()
	for i := range records {
		records[i].Seconds, records[i].Phases = 0, nil
	}

	return string(goldentest.JSON(t, records))
}

// OneProcess returns the result of the same experiment in one process.
func OneProcess(t testing.TB, experiment *spec.Experiment) (prompts, records string) {
	t.Helper()
	dir := t.TempDir()
	r := enginetest.Run(t, experiment, engine.Settings{Dir: dir, Workers: 2})
	return enginetest.Prompts(t, dir), WithoutTimes(t, r.Records)
}

// WithEvaluationSet adds an evaluation set to an experiment, with the examples of client 0.
func WithEvaluationSet(experiment *spec.Experiment) *spec.Experiment {
	experiment.EvaluationSets = []spec.EvaluationSet{{Name: "again",
		Test: map[string]*spec.Features{experiment.Clients[0].Backbone.Name(): experiment.Clients[0].Test}}}
	return experiment
}
