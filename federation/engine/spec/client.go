package spec

import (
	"slices"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Client is one participant: its backbone, its data, its name for reports.
type Client struct {
	ID       int
	Backbone Backbone
	Domain   string
	Train    method.Data
	Val      *Features // nil for none
	Test     *Features
}

// Classes lists the classes that the client has training examples of.
func (c *Client) Classes() []int64 {
	return slices.Compact(slices.Sorted(slices.Values(c.Train.Labels())))
}

// Memory returns the tensors of method.Scope.Memory for a client. Of several views of an image it holds one, the same
// in every round.
func Memory(c *Client, seed uint64) (tensor.Map, error) {
	return c.Train.Batch(message.Indices(c.Train.Len()), method.Rand(seed, "memory", strconv.Itoa(c.ID)))
}
