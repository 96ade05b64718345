package engine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
)

// passes notes how many prompts go through the text tower in one pass.
type passes struct {
	*methodtest.Toy
	mu *sync.Mutex
	of *[]int
}

func (p passes) Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error) {
	p.mu.Lock()
	*p.of = append(*p.of, len(prompts))
	p.mu.Unlock()
	return p.Toy.Text(g, classes, prompts)
}

// TestPromptsInOnePass: of seven clients in runs of up to four, steps are of four and then, where three are left, of
// two and of one; tests need the class features of the merged prompt and of seven own ones, so twice four. A graph is
// built once for each number: 4, 2 and 1 for steps, 4 and 1 for tests. The first step at the merged prompt is another.
func TestPromptsInOnePass(t *testing.T) {
	m, err := methods.Build("promptfl", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := withMethod(m)
	e.Clients, e.Plan.Rounds, e.BatchClients = methodtest.Alike(8, 8, 8, 8, 8, 8, 8), 1, 4
	var got []int
	b := passes{e.Clients[0].Backbone.(*methodtest.Toy), &sync.Mutex{}, &got}
	for _, c := range e.Clients {
		c.Backbone = b
	}
	for bytes, want := range map[int][]int{-1: {1, 1, 2, 4, 4}, 0: {1, 1, 1, 2, 4, 4}} {
		got = nil
		mustRun(t, e, engine.Settings{Settings: client.Settings{PrefixBytes: bytes}, Workers: 1})
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("graphs of %v prompts, want %v", got, want)
		}
	}
}

// TestGroups: clients with 9, 5, 6, 3, 12 and 4 examples take 3, 2, 2, 1, 3 and 1 steps of four. On one backbone, in
// groups of two, those with most steps go together; on two backbones in turn (steps 3, 2, 3 and 2, 1, 1) no group has
// both. FedPHA's own prompts have two lengths in turn, which are different programs likewise.
func TestGroups(t *testing.T) {
	sizes := []int{9, 5, 6, 3, 12, 4}
	pha, err := methods.Build("fedpha", nil, map[string]any{"local_tokens": []int{2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	fl, err := methods.Build("promptfl", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m       method.Method
		clients []*spec.Client
		batch   int
		want    string
	}{
		{fl, methodtest.Alike(sizes...), 1, "[[0] [1] [2] [3] [4] [5]]"},
		{fl, methodtest.Alike(sizes...), 2, "[[0 4] [1 2] [3 5]]"},
		{fl, methodtest.Alike(sizes...), 9, "[[0 4 1 2 3 5]]"},
		{fl, methodtest.Clients(sizes...), 2, "[[0 4] [2] [1 3] [5]]"},
		{pha, methodtest.Alike(sizes...), 3, "[[0 4 2] [1 3 5]]"},
	} {
		e := withMethod(c.m)
		e.Clients, e.BatchClients = c.clients, c.batch
		w := client.NewWorker(e, client.Settings{})
		got, err := w.Groups(e.Clients, len(sizes))
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s in groups of %d: %v, want %s", c.m, c.batch, got, c.want)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
