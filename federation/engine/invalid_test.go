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

// plainCohort exposes only the interface of a cohort, like any layer around one.
type plainCohort struct{ message.Cohort }

func wrapped(c message.Cohort) message.Cohort { return plainCohort{c} }

// requestsNumber is a method that requests a number of each client before training. It fails on the number 3, and on 2
// where it has no other. With broken its server fails on every upload.
type requestsNumber struct {
	method.Method
	broken bool
	taken  *int // how many numbers it last took
}

func (m requestsNumber) Statistics(round int) []method.Statistic {
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
				if n := u.Extra["n"].Data[0]; n == 3 || n == 2 && len(ups) == 1 {
					return fmt.Errorf("number %v of %d", n, len(ups))
				}
			}
			*m.taken = len(ups)
			return nil
		}}}
}

func (m requestsNumber) Merge(g *method.Global, ups []method.Upload) error {
	if m.broken {
		return fmt.Errorf("%d uploads do not add up", len(ups))
	}
	return m.Method.Merge(g, ups)
}

// rejectionRecorder remembers the clients whose replies the method failed on. With silent nobody answers statistics.
type rejectionRecorder struct {
	*remoteClients
	rejected []int
	silent   bool
}

func (x *rejectionRecorder) Rejected(_, client int, _ error) { x.rejected = append(x.rejected, client) }

func (x *rejectionRecorder) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if x.silent && o.Kind == message.Compute {
		return nil, nil
	}
	return x.remoteClients.Run(ctx, o)
}

// Remote clients are not trusted behind a layer around their cohort either, such as secure aggregation. A client whose
// answer alone makes the method fail is left out, and the cohort is told. A statistic that nobody answers does not end
// the run.
func TestWrappedCohortIsRemote(t *testing.T) {
	for name, wrap := range map[string]func(message.Cohort) message.Cohort{"bare": nil, "wrapped": wrapped} {
		e := toy(t)
		taken := 0
		e.Method = requestsNumber{Method: e.Method, taken: &taken}
		x := &rejectionRecorder{remoteClients: newRemoteClients(e)}
		mustRun(t, server(e), engine.Settings{Remote: x, Wrap: wrap})
		if !slices.Equal(x.rejected, []int{2, 3}) || taken != 2 {
			t.Errorf("%s: the cohort heard of %v, not of clients 2 and 3; %d count", name, x.rejected, taken)
		}
		x = &rejectionRecorder{remoteClients: newRemoteClients(e), silent: true}
		if r := mustRun(t, server(e), engine.Settings{Remote: x, Wrap: wrap}); len(r.Records) != e.Plan.Rounds {
			t.Errorf("%s: %d rounds", name, len(r.Records))
		}
	}
}

// If the method fails on a sum of several clients, no client is named. The rounds are skipped with the method's error
// as a warning, and the parameters stay.
func TestFailingSum(t *testing.T) {
	e := toy(t)
	e.Method = requestsNumber{e.Method, true, new(int)}
	x := &rejectionRecorder{remoteClients: newRemoteClients(e)}
	sum := func(c message.Cohort) message.Cohort { return plainCohort{sumCohort{c}} }
	r := mustRun(t, server(e), engine.Settings{Remote: x, Wrap: sum})
	for _, rec := range r.Records {
		if text := strings.Join(rec.Warnings, ""); len(rec.Clients) > 0 || !strings.Contains(text, "is skipped: ") ||
			!strings.Contains(text, "1 uploads do not add up") {
			t.Errorf("round %d counts %v and says %q", rec.Round+1, rec.Clients, text)
		}
	}
	if slices.Contains(x.rejected, 0) || slices.Contains(x.rejected, 1) { // 2 and 3 are rejected by their statistics
		t.Errorf("the cohort heard of %v", x.rejected)
	}
}

// sumCohort returns one reply for all clients that train.
type sumCohort struct{ message.Cohort }

func (c sumCohort) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies, err := c.Cohort.Run(ctx, o)
	if err != nil || o.Kind != message.Train {
		return replies, err
	}
	one := replies[0]
	one.Client, one.Upload.Client, one.Sum = method.AggregatedClient, method.AggregatedClient, o.Clients
	return []message.Reply{one}, nil
}
