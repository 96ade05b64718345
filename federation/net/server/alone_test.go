package server_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// QuorumSize returns the numbers of the documentation, derived by hand: the share rounded up, and below 1 at most all
// but one.
func TestQuorumSize(t *testing.T) {
	for _, c := range []struct {
		quorum        float64
		clients, need int
	}{{0.8, 3, 2}, {0.8, 5, 4}, {0.8, 10, 8}, {0.8, 2, 1}, {0.8, 1, 1}, {0.8, 0, 0}, {1, 3, 3}, {1, 1, 1}, {0.5, 3, 2},
		{0.01, 10, 1}, {0.99, 100, 99}} {
		if got := server.QuorumSize(c.quorum, c.clients); got != c.need {
			t.Errorf("quorum %v of %d: %d, not %d", c.quorum, c.clients, got, c.need)
		}
	}
}

// One of three clients uploads NaN. With a quorum of 1 the run ends with that client's reason; with less the two others
// continue (TestHostileUploads).
func TestOneBadOfThree(t *testing.T) {
	e := nettest.FedPHA.Experiment(t)
	e.Clients = e.Clients[:3]
	e.Plan.Participation, e.Plan.Rounds = 1, 2
	s := newSite(t, e)
	s.spoil(message.Train, func(r *message.Reply) { r.Upload.Shared["global"].Data[0] = float32(math.NaN()) })
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	left := s.joinAll(ctx, cancel, 3)
	goldentest.WantErrorOf(t, "with a quorum of 1", s.serve(ctx, false), "client 1", "holds NaN")
	cancel()
	left()
}

// If the only client of a round fails, or the method fails on its extras, the round has no upload and the run
// continues.
func TestTheOnlyClientFails(t *testing.T) {
	for i, spoil := range []func(r *message.Reply){
		func(r *message.Reply) { r.Upload.N = 0 },
		func(r *message.Reply) { clear(r.Upload.Extra) },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			e := nettest.Method("promptfl", []string{"scaffold"}, nil).Experiment(t)
			e.Plan.Participation, e.Plan.Rounds = 0.25, 4
			s := newSite(t, e)
			s.set.Quorum = 0.8
			s.part = func(client int, p netclient.LocalExecutor) netclient.Executor {
				return liar{p, func(o message.Instruction, r *message.Reply) {
					if o.Kind == message.Train {
						spoil(r)
					}
				}}
			}
			s.run()
			records, err := record.Records(s.dir)
			if err != nil || len(records) != 4 {
				t.Fatal(len(records), err)
			}
			for _, r := range records {
				if len(r.Clients) != 0 {
					t.Errorf("round %d counts clients %v", r.Round, r.Clients)
				}
			}
		})
	}
}
