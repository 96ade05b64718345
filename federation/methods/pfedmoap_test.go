package methods

import (
	"slices"
	"testing"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// A client gets the prompts nearest to its own of those that others ever uploaded, never its own; one that never
// uploaded gets none.
func TestPFedMoAPChoosesTheNearest(t *testing.T) {
	built, err := Build("pfedmoap", nil, map[string]any{"tokens": 1, "experts": 3})
	if err != nil {
		t.Fatal(err)
	}
	g := &method.Global{Clients: 6, Width: 1, Shared: tensor.Map{"ctx": tensor.New(1, 1)}, State: tensor.Map{},
		PerClient: map[int]tensor.Map{}}
	if err := built.Start(g); err != nil {
		t.Fatal(err)
	}
	upload := func(client int, at float32) method.Upload {
		return method.Upload{Client: client, N: 1, Shared: tensor.Map{"ctx": tensor.Of([]float32{at}, 1, 1)}}
	}
	for _, round := range [][]method.Upload{{upload(0, 0), upload(1, 9)}, {upload(2, 1), upload(3, 5), upload(4, 6)}} {
		if err := built.Merge(g, round); err != nil {
			t.Fatal(err)
		}
	}
	for client, want := range map[int][]float32{0: {1, 5}, 1: {6, 5}, 2: {0, 5}, 3: {6, 9}, 4: {5, 9}, 5: {0, 0}} {
		got, known := g.PerClient[client][moapExperts], g.PerClient[client][moapKnown]
		if !slices.Equal(got.Data, want) || (known.Data[0] == 0) != (client == 5) {
			t.Errorf("client %d mixes %v, %v; want %v", client, got.Data, known.Data, want)
		}
	}
}
