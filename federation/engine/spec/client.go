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

// Classes are those that the client has examples of to train on.
func (c *Client) Classes() []int64 {
	return slices.Compact(slices.Sorted(slices.Values(c.Train.Labels())))
}

// Memory is method.Scope.Memory of a client. Of several views of an image it holds one, the same in every round.
func Memory(c *Client, seed uint64) (tensor.Map, error) {
	return c.Train.Batch(message.Indices(c.Train.Len()), method.Rand(seed, "memory", strconv.Itoa(c.ID)))
}
