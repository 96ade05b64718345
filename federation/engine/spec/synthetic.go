package spec

import (
	"errors"
	"fmt"

	"promptfed/federation/method"
)

// Synthetic is data of the server, on which it trains the shared parameters before round 0, as a client would.
type Synthetic struct {
	Backbone Backbone
	Data     method.Data
	Epochs   int
}

// Check returns an error for data that cannot be used.
func (s *Synthetic) Check(classes int) error {
	if s.Epochs < 1 {
		return fmt.Errorf("synthetic.epochs is %d; it must be 1 or more", s.Epochs)
	}
	if s.Data.Len() == 0 {
		return errors.New("the synthetic set has no images")
	}
	for _, y := range s.Data.Labels() {
		if y < 0 || y >= int64(classes) {
			return fmt.Errorf("the synthetic set has label %d, but there are %d classes", y, classes)
		}
	}
	return nil
}
