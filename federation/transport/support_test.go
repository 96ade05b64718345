package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"promptfed/federation/engine"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/federation/wire"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
	"strings"
	"sync"
	"testing"
	"time"
)

// stack is a method with wrappers and options.
type stack struct {
	method  string
	with    []string
	options map[string]any
}

var fedpha = stack{"fedpha", nil, map[string]any{"global_tokens": 3, "local_tokens": []int{2, 4},
	"projector": "exact-null"}}

// toy is an experiment on four toy clients.
func (s stack) toy(t testing.TB) *engine.Experiment {
	t.Helper()
	m, err := methods.Build(s.method, s.with, s.options)
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Experiment{Name: "toy", MethodName: strings.Join(append([]string{s.method}, s.with...), "+"),
		Options: fmt.Sprint(s.options),
		Method:  m, Classes: methodtest.Classes, Template: "a {}.", Clients: methodtest.Alike(9, 5, 6, 3),
		Training: engine.Training{Epochs: 2, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9}},
		Plan:     engine.Plan{Rounds: 3, TestEvery: 1, Seed: 5, Participation: 0.75}}
}

// logs collects what both sides say.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func bytesOf(t testing.TB, m tensor.Map) string {
	t.Helper()
	b, err := wire.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func timeless(t testing.TB, records []engine.Record) string {
	t.Helper()
	for i := range records {
		records[i].Seconds = 0
	}
	text, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s did not happen", what)
}

// alone is what the same experiment gives in one process.
func alone(t testing.TB, e *engine.Experiment) (prompts, records string) {
	t.Helper()
	dir := t.TempDir()
	r, err := engine.Run(context.Background(), e, engine.Settings{Dir: dir, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, engine.PromptsFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(b), timeless(t, r.Records)
}

// within gives a context that ends with the test, or after some time.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// examined gives an experiment an exam, on the examples of client 0.
func examined(e *engine.Experiment) *engine.Experiment {
	e.Exams = []engine.Exam{{Name: "again",
		Test: map[string]method.Data{e.Clients[0].Backbone.Name(): e.Clients[0].Test}}}
	return e
}
