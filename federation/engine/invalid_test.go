package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// wrapping hides everything of a cohort but its interface, as any layer around one does.
type wrapping struct{ message.Cohort }

func wrapped(c message.Cohort) message.Cohort { return wrapping{c} }

// numbering is a method that asks a number of each client before training, and fails on the number 2. With broken its
// server fails on every upload.
type numbering struct {
	method.Method
	broken bool
}

func (m numbering) Statistics(round int) []method.Statistic {
	if round > 0 {
		return nil
	}
	return []method.Statistic{{Name: "number",
		Compute: func(l *method.Local) (tensor.Map, error) {
			return tensor.Map{"n": tensor.Scalar(float32(l.Task.Client))}, nil
		},
		Answer: func(method.ClientSpec) []method.Extra { return []method.Extra{{Name: "n", Shape: []int{}}} },
		Aggregate: func(_ *method.Global, ups []method.Upload) error {
			for _, u := range ups {
				if u.Extra["n"].Data[0] == 2 {
					return fmt.Errorf("number 2 of %d", len(ups))
				}
			}
			return nil
		}}}
}

func (m numbering) Merge(g *method.Global, ups []method.Upload) error {
	if m.broken {
		return fmt.Errorf("%d uploads do not add up", len(ups))
	}
	return m.Method.Merge(g, ups)
}

// hearing remembers which clients' replies the method failed on. With silent nobody answers statistics.
type hearing struct {
	*elsewhere
	rejected []int
	silent   bool
}

func (x *hearing) Rejected(_, client int, _ error) { x.rejected = append(x.rejected, client) }

func (x *hearing) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if x.silent && o.Kind == message.Compute {
		return nil, nil
	}
	return x.elsewhere.Run(ctx, o)
}

// Clients on other machines are not trusted behind any layer around their cohort either, such as secure aggregation:
// the one whose answer the method fails on is left out and the cohort hears of it, and a statistic that nobody answers
// does not end the run.
func TestWrappedCohortIsRemote(t *testing.T) {
	for name, wrap := range map[string]func(message.Cohort) message.Cohort{"bare": nil, "wrapped": wrapped} {
		e := toy(t)
		e.Method = numbering{Method: e.Method}
		x := &hearing{elsewhere: newElsewhere(e)}
		mustRun(t, server(e), engine.Settings{Remote: x, Wrap: wrap})
		if !slices.Equal(x.rejected, []int{2}) {
			t.Errorf("%s: the cohort heard of %v, not of client 2", name, x.rejected)
		}
		x = &hearing{elsewhere: newElsewhere(e), silent: true}
		if r := mustRun(t, server(e), engine.Settings{Remote: x, Wrap: wrap}); len(r.Records) != e.Plan.Rounds {
			t.Errorf("%s: %d rounds", name, len(r.Records))
		}
	}
}

// A sum of several clients that the method fails on is no single client's fault: the rounds are skipped with the
// method's error as a warning, the parameters stay, and no client is named.
func TestFailingSum(t *testing.T) {
	e := toy(t)
	e.Method = numbering{e.Method, true}
	x := &hearing{elsewhere: newElsewhere(e)}
	sum := func(c message.Cohort) message.Cohort { return wrapping{adding{c}} }
	r := mustRun(t, server(e), engine.Settings{Remote: x, Wrap: sum})
	for _, rec := range r.Records {
		if text := strings.Join(rec.Warnings, ""); len(rec.Clients) > 0 || !strings.Contains(text, "is skipped: ") ||
			!strings.Contains(text, "1 uploads do not add up") {
			t.Errorf("round %d counts %v and says %q", rec.Round+1, rec.Clients, text)
		}
	}
	if slices.Contains(x.rejected, 0) || slices.Contains(x.rejected, 1) { // 2 by its answer to the statistic
		t.Errorf("the cohort heard of %v", x.rejected)
	}
}

// adding gives the server one reply for all that train.
type adding struct{ message.Cohort }

func (c adding) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies, err := c.Cohort.Run(ctx, o)
	if err != nil || o.Kind != message.Train {
		return replies, err
	}
	one := replies[0]
	one.Client, one.Upload.Client, one.Sum = method.Summed, method.Summed, o.Clients
	return []message.Reply{one}, nil
}
