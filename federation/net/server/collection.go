package server

import (
	"maps"
	"slices"
	"sync"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wire"
)

// collection is an instruction in progress and its replies.
type collection struct {
	instruction message.Instruction
	wake        chan struct{} // something changed

	// of the goroutine that runs the experiment
	large  int     // clients whose own tensors are too large
	common encoded // tensors of all clients, once they are needed

	mu     sync.Mutex
	given  map[int]string        // identities of the instruction, by client
	got    map[int]message.Reply // by client
	failed map[int]string        // reason, by client without an answer
	closed bool
}

func newCollection(instruction message.Instruction) *collection {
	return &collection{instruction: instruction, wake: make(chan struct{}, 1), given: map[int]string{},
		got: map[int]message.Reply{}, failed: map[int]string{}}
}

// open reports whether a client may still answer.
func (c *collection) open(client int) bool {
	_, got := c.got[client]
	return !got && c.failed[client] == "" && !c.closed
}

// state reports whether a client has the instruction, whether it answered it, and whether it may still answer.
func (c *collection) state(client int) (given, answered, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, answered = c.got[client]
	return c.given[client] != "", answered, c.open(client)
}

// give records the identity of the instruction to a client.
func (c *collection) give(client int, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given[client] = id
}

// accept adds the reply of a client that has none. then is called before anybody learns of it.
func (c *collection) accept(r message.Reply, then func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open(r.Client) {
		return false
	}

	c.got[r.Client] = r
	then()
	return true
}

// fail records why a client has no answer to the instruction with an identity, or with an empty one to any. then is
// called before anybody learns of it.
func (c *collection) fail(client int, id, why string, then func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := id == "" && slices.Contains(c.instruction.Clients, client) || id != "" && id == c.given[client]
	if !asked || !c.open(client) {
		return false
	}

	c.failed[client] = why
	then()
	return true
}

// close ends the collection and returns its replies.
func (c *collection) close() map[int]message.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.got
}

// view is a collection and its clients at one moment.
type view struct {
	instruction message.Instruction
	answers     int
	failed      map[int]string
	waits       bool  // for a client that has joined, did not leave and is not silent
	expected    []int // clients without an answer, of which one may come
	others      []int // other clients without an answer that did not fail
	may         int   // clients of the run from which an answer may come
}

// asked returns the number of clients that count as asked.
func (v view) asked() int { return len(v.instruction.Clients) - len(v.failed) }

// look returns the state of a collection.
func (h *Server) look(collection *collection) view {
	roster := h.members.roster()
	may := func(k int) bool { return roster.clients[k].counts() && !h.counts.tally(k).silent() }
	view := view{instruction: collection.instruction}
	for k := range roster.clients {
		if may(k) {
			view.may++
		}
	}

	collection.mu.Lock()
	defer collection.mu.Unlock()
	view.answers, view.failed = len(collection.got), maps.Clone(collection.failed)
	for _, k := range collection.instruction.Clients {
		if !collection.open(k) {
			continue
		}
		if may(k) {
			view.expected = append(view.expected, k)
		} else {
			view.others = append(view.others, k)
		}
		view.waits = view.waits || roster.clients[k].joined && !roster.clients[k].left && h.awaited(collection, k)
	}

	return view
}

// awaited reports whether an instruction waits for a client that has it. The end of the run waits for all clients,
// because each gets the final parameters.
func (h *Server) awaited(c *collection, client int) bool {
	return c.instruction.Kind == wire.EndKind || !h.counts.tally(client).silent()
}
