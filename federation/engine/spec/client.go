package spec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"promptfed/federation/configtags"
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
func Memory(client *Client, seed uint64) (tensor.Map, error) {
	return client.Train.Batch(tensor.Indices(client.Train.Len()), method.Rand(seed, "memory", strconv.Itoa(client.ID)))
}

// LabelsOnly is the data of a client whose examples are on another machine, of which only the classes are known.
type LabelsOnly []int64

func (o LabelsOnly) Len() int { return 0 }

func (o LabelsOnly) Labels() []int64 { return o }

func (o LabelsOnly) Order(*rand.Rand) []int { return nil }

// Batch always returns an error.
func (o LabelsOnly) Batch([]int, *rand.Rand, ...string) (tensor.Map, error) {
	return nil, errors.New("the examples of this client are not on this machine")
}

// Synthetic is data of the server, on which it trains the shared parameters before round 0, as a client would.
type Synthetic struct {
	Backbone Backbone
	Data     method.Data
	Epochs   int
}

// Check returns an error for data that cannot be used.
func (s *Synthetic) Check(classes int) error {
	if s.Epochs < 1 {
		return configtags.KeyErrorf("synthetic.epochs", "%d must be 1 or more", s.Epochs)
	}

	if s.Data.Len() == 0 {
		return errors.New("the synthetic set has no images")
	}

	return CheckLabels("the synthetic set", s.Data.Labels(), classes)
}

// CheckLabels refuses labels beyond the classes; what has them is named in the error.
func CheckLabels(what string, labels []int64, classes int) error {
	for _, y := range labels {
		if y < 0 || y >= int64(classes) {
			return fmt.Errorf("%s has label %d, but there are %d classes", what, y, classes)
		}
	}
	return nil
}
