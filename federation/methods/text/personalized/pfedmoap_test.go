package personalized_test

import (
	"slices"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// startPFedMoAP starts the method with prompts of one number, and returns a function that makes uploads of them.
func startPFedMoAP(t *testing.T, experts, clients int) (method.Method, *method.Global,
	func(client int, at float32) method.Upload) {
	t.Helper()
	built := methodtest.Build(t, "pfedmoap", nil, map[string]any{"tokens": 1, "experts": experts})
	g := &method.Global{Clients: clients, Width: 1, Shared: tensor.Map{"ctx": tensor.New(1, 1)}, State: tensor.Map{},
		PerClient: map[int]tensor.Map{}}
	goldentest.NoError(t, built.Start(g))
	return built, g, func(client int, at float32) method.Upload {
		return method.Upload{Client: client, N: 1, Shared: tensor.Map{"ctx": tensor.Of([]float32{at}, 1, 1)}}
	}
}

// A client receives the prompts nearest to its own among the earlier uploads of other clients, never its own. A client
// that never uploaded receives none.
func TestPFedMoAPChoosesTheNearest(t *testing.T) {
	built, g, upload := startPFedMoAP(t, 3, 6)
	for _, round := range [][]method.Upload{{upload(0, 0), upload(1, 9)}, {upload(2, 1), upload(3, 5), upload(4, 6)}} {
		goldentest.NoError(t, built.Merge(g, round))
	}
	for client, want := range map[int][]float32{0: {1, 5}, 1: {6, 5}, 2: {0, 5}, 3: {6, 9}, 4: {5, 9}, 5: {0, 0}} {
		got, known := g.PerClient[client]["moap/experts"], g.PerClient[client]["moap/known"]
		if !slices.Equal(got.Data, want) || (known.Data[0] == 0) != (client == 5) {
			t.Errorf("client %d mixes %v, %v; want %v", client, got.Data, known.Data, want)
		}
	}
}

// A client that trained is tested with the prompts of its turn, and another client with the prompts that the server
// chose after that round's turns. In round 0 nobody has prompts of others.
// In round 1 clients 0 and 1 train with each other's prompts of round 0; client 2 did not train.
func TestPFedMoAPTestsWithTheTurn(t *testing.T) {
	built, g, upload := startPFedMoAP(t, 2, 3)
	for round, c := range []struct {
		ups          []method.Upload
		next, tested []float32 // by client
	}{
		{[]method.Upload{upload(0, 3), upload(1, 4), upload(2, 9)}, []float32{4, 3, 4}, []float32{0, 0, 0}},
		{[]method.Upload{upload(0, 5), upload(1, 8)}, []float32{8, 9, 8}, []float32{4, 3, 8}},
	} {
		goldentest.NoError(t, built.Merge(g, c.ups))
		for k := range 3 {
			next, mixed := g.PerClient[k]["moap/experts"].Data[0], g.PerClient[k]["moap/tested"].Data[0]
			if known := g.PerClient[k]["moap/tested_known"].Data[0]; next != c.next[k] || mixed != c.tested[k] ||
				(known == 1) != (mixed != 0) {
				t.Errorf("round %d, client %d: trains next with %v and is tested with %v (known %v), want %v and %v",
					round, k, next, mixed, known, c.next[k], c.tested[k])
			}
		}
	}
}
