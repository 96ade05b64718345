package orttest

import (
	"context"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Model returns the model of a graph that must be valid.
func Model(t testing.TB, outputs ...graph.Output) *onnx.ModelProto {
	t.Helper()
	m, err := graph.Model(outputs...)
	goldentest.NoError(t, err)
	return m
}

// Gradients returns the gradients of a loss, which must have them.
func Gradients(t testing.TB, loss graph.Node, wrt ...graph.Node) []graph.Node {
	t.Helper()
	d, err := grad.Of(loss, wrt...)
	goldentest.NoError(t, err)
	return d
}

// Open opens a session for the time of a test.
func Open(t testing.TB, m *onnx.ModelProto, o ort.Options) *ort.Session {
	t.Helper()
	s, err := ort.NewSession(m, o)
	goldentest.NoError(t, err)

	t.Cleanup(func() { s.Close() })
	return s
}

// RunOnce runs a model that must not fail.
func RunOnce(t testing.TB, m *onnx.ModelProto, o ort.Options, in tensor.Map) tensor.Map {
	t.Helper()
	out, err := ort.RunOnce(context.Background(), m, o, in)
	goldentest.NoError(t, err)
	return out
}
