package client_test

import (
	"slices"
	"sync"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
)

// countsPrompts notes the number of prompts in each pass of the text tower.
type countsPrompts struct {
	*methodtest.Toy
	mu *sync.Mutex
	of *[]int
}

func (p countsPrompts) Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error) {
	p.mu.Lock()
	*p.of = append(*p.of, len(prompts))
	p.mu.Unlock()
	return p.Toy.Text(g, classes, prompts)
}

// TestPromptsInOnePass: with seven clients in runs of up to four, steps have four clients and then, where three are
// left, two and one. Tests need class features of the merged prompt and of seven private ones: four twice. A graph is
// built once for each number: 4, 2 and 1 for steps, 4 and 1 for tests. The first step at the merged prompt is another
// graph.
func TestPromptsInOnePass(t *testing.T) {
	m := buildMethod(t, "promptfl", nil, nil)
	e := withMethod(m)
	e.Clients, e.Plan.Rounds, e.BatchClients = methodtest.ClientsOfOneBackbone(8, 8, 8, 8, 8, 8, 8), 1, 4
	var got []int
	b := countsPrompts{e.Clients[0].Backbone.(*methodtest.Toy), &sync.Mutex{}, &got}
	for _, c := range e.Clients {
		c.Backbone = b
	}
	for bytes, want := range map[int][]int{-1: {1, 1, 2, 4, 4}, 0: {1, 1, 1, 2, 4, 4}} {
		got = nil
		mustRun(t, e, engine.Settings{Client: client.Settings{PrefixBytes: bytes}, Workers: 1})
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("graphs of %v prompts, want %v", got, want)
		}
	}
}
