package workers_test

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/workers"
	"promptfed/runtime/tensor"
)

// A result that its job cannot have is refused and its job is tried again; if all are such, the run ends and names the
// job and the worker. Another job's result is one.
func TestLyingWorker(t *testing.T) {
	want, _ := nettest.OneProcess(t, nettest.FedPHA.Experiment(t))
	for says, lie := range map[string]func(r *message.Reply){
		"the result is of client 3, with an upload of client 3": func(r *message.Reply) {
			r.Client, r.Upload.Client = 3, 3
		},
		"the result is of client 2, with an upload of client 3": func(r *message.Reply) { r.Upload.Client = 3 },
		"NaN": func(r *message.Reply) {
			for name := range r.Upload.Shared {
				r.Upload.Shared[name] = r.Upload.Shared[name].Clone()
				r.Upload.Shared[name].Data[0] = float32(math.NaN())
			}
		},
		"the tensor global is missing": func(r *message.Reply) {
			r.Upload.Shared = tensor.Map{"other/ctx": tensor.New(2)}
		},
		"examples":                              func(r *message.Reply) { r.Upload.N = 0 },
		"the loss or a statistic is not finite": func(r *message.Reply) { r.Stats.Loss = math.Inf(1) },
	} {
		t.Run(says, func(t *testing.T) {
			f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
			var lies atomic.Int64
			lies.Store(1)
			f.around = func(_ int, do workers.Executor) workers.Executor {
				return func(ctx context.Context, client int, o message.Instruction, s message.ClientState) (
					message.Reply, *message.ClientState, error) {
					r, next, err := do(ctx, client, o, s)
					if o.Kind == message.Train && client == 2 && lies.Add(-1) >= 0 {
						lie(&r)
					}
					return r, next, err
				}
			}
			f.start(ctx, 0, 2)
			prompts, _, totals, err := f.run(ctx)
			if err != nil || prompts != want || totals.Failed != 1 {
				t.Errorf("%v, %+v", err, totals)
			}
			lies.Store(1 << 30)
			f.start(ctx, 1, 1)
			_, _, _, err = f.run(ctx, func(s *engine.Settings) { s.Dir = t.TempDir() })
			if err == nil || !strings.Contains(err.Error(), "client 2: worker host1: ") ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%v", err)
			}
		})
	}
}
