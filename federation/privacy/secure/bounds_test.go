package secure_test

import (
	"context"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
)

// sizeChecker is a cohort that compares replies with the forms of their instructions.
type sizeChecker struct {
	message.Cohort
	t    *testing.T
	seen map[string]int // replies by step
}

func (c sizeChecker) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if o.Statistic == "secagg-shares" && o.PerClient[0]["guard/roster"] != o.PerClient[1]["guard/roster"] {
		c.t.Error("the roster is in memory for each client")
	}
	replies, err := c.Cohort.Run(ctx, o)
	for _, r := range replies {
		if o.Kind.Tests() {
			break
		}
		forms := o.ReplySpecs(nil, method.ClientSpec{})
		b, err := message.EncodeTensors(r.Tensors())
		if err == nil {
			_, err = message.DecodeTensorsAs(b, forms)
		}
		_, most, other := message.MaxEncodedSize(forms)
		if err != nil || other != nil || o.Kind == message.Train && most != int64(len(b)) {
			c.t.Errorf("%s %s: %d bytes, at most %d are expected: %v, %v", o.Kind, o.Statistic, len(b), most, err,
				other)
		}
		c.seen[string(o.Kind)+o.Statistic]++
	}
	return replies, err
}

// The messages of clients in each step have the expected forms, and a vector has exactly the expected size.
func TestSizesAreKnown(t *testing.T) {
	for _, with := range [][]string{nil, {"scaffold"}} {
		e, l := experiment(t, config, "promptfl", with, options{"tokens": 2})
		set, seen := over(l, true), map[string]int{}
		set.Wrap = func(c message.Cohort) message.Cohort { return l.Wrap(sizeChecker{c, t, seen}) }
		enginetest.Run(t, e, set)
		if len(seen) < 3 {
			t.Errorf("few steps were seen: %v", seen)
		}
		for step, n := range seen {
			if n != 15 { // five clients in three rounds
				t.Errorf("%s: %d replies", step, n)
			}
		}
	}
}
