package engine

import (
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

const (
	memoryPrefix = "client/" // of method.Scope.Memory's inputs
	memoryFolder = "memory"  // of a client's memory in PromptsFile: memory/K/image and memory/K/label
)

// memory is method.Scope.Memory of a client. Of several views of an image it holds one, the same in every round.
func memory(c *Client, seed uint64) (tensor.Map, error) {
	return c.Train.Batch(all(c.Train.Len()), method.Rand(seed, "memory", strconv.Itoa(c.ID)))
}

// remembers tells whether a method's class scores read the client's own examples.
func remembers(m method.Method, task method.Task) bool {
	s := method.NewScope(task, m.Params(task))
	return slices.ContainsFunc(graph.Inputs(m.Logits(s)),
		func(n graph.Node) bool { return n.Name() == method.MemoryImage })
}

// downFolder holds the server's extras that a client's class scores read, in PromptsFile: down/K/NAME.
const downFolder = "down"

// sent is what each client's class scores read of the server's extras, as K/NAME.
func (e *Experiment) sent(g *method.Global, members []Member) tensor.Map {
	out := tensor.Map{}
	for id, c := range members {
		if !c.Joined {
			continue
		}
		t := c.Task
		for _, n := range graph.Inputs(e.Method.Logits(method.NewScope(t, e.Method.Params(t)))) {
			name, ok := strings.CutPrefix(n.Name(), method.BroadcastInput+"/")
			if !ok {
				continue
			}
			for _, from := range []tensor.Map{g.Broadcast, g.PerClient[id]} {
				if v := from[name]; v != nil {
					out[strconv.Itoa(id)+"/"+name] = v
				}
			}
		}
	}
	return out
}

// Memory gives the examples that a finished run kept of a client, or nil.
func Memory(prompts tensor.Map, client int) method.Data {
	m := prompts.Under(memoryFolder + "/" + strconv.Itoa(client))
	if m["image"] == nil || m["label"] == nil {
		return nil
	}
	return &Features{Views: []Rows{Held{m["image"]}}, Class: m["label"].Ints}
}
