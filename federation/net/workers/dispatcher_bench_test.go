package workers_test

import (
	"context"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/workers"
	"promptfed/runtime/busytest"
	"promptfed/runtime/tensor"
)

// The cost of a job beside the work itself: to a worker and back over TCP, with two workers of this process that do
// nothing, for prompts of 16 tokens of width 512 and as much state. bytes-down and bytes-up are those of one job.
func BenchmarkJob(b *testing.B) {
	e := nettest.Method("promptfl", nil, map[string]any{"tokens": 2}).Experiment(b)
	for name, parallel := range map[string]int{"one-at-a-time": 0, "64-at-a-time": 64} {
		b.Run(name, func(b *testing.B) {
			f, _ := newFarm(b, e)
			f.around = func(int, workers.Executor) workers.Executor {
				return func(_ context.Context, client int, o message.Instruction, _ message.ClientState) (message.Reply,
					*message.ClientState, error) {
					up := method.Upload{Client: client, N: 9, Shared: o.Shared}
					return message.Reply{Client: client, Upload: up}, &message.ClientState{Own: o.Shared}, nil
				}
			}
			ctx, cancel := context.WithCancel(busytest.Context(b))
			defer cancel()
			c, err := workers.Open(ctx, f.nats.Conn(), f.set)
			if err != nil {
				b.Fatal(err)
			}
			for k := range 2 {
				f.start(ctx, k, max(1, parallel/2))
			}
			prompts := tensor.Map{"ctx": tensor.New(16, 512)}
			o := message.Instruction{Kind: message.Train, Clients: []int{1}, Total: 4, Shared: prompts}
			job := func(round int) {
				o := o
				o.Round = round
				if _, _, err := c.Execute(ctx, e.Clients[1], o, remembers(prompts)); err != nil {
					b.Error(err)
				}
			}
			job(0)
			b.ResetTimer()
			if parallel == 0 {
				for i := range b.N {
					job(i + 1)
				}
			} else {
				work := make(chan int)
				done := make(chan struct{})
				for range parallel {
					go func() {
						for i := range work {
							job(i)
						}
						done <- struct{}{}
					}()
				}
				for i := range b.N {
					work <- i + 1
				}
				close(work)
				for range parallel {
					<-done
				}
			}
			b.StopTimer()
			t := c.Totals()
			b.ReportMetric(float64(t.Down)/float64(t.Jobs), "bytes-down")
			b.ReportMetric(float64(t.Up)/float64(t.Jobs), "bytes-up")
			c.Close()
			cancel()
		})
	}
}

// remembers is what a client remembers that has prompts of its own.
func remembers(own tensor.Map) func() (message.ClientState, error) {
	return func() (message.ClientState, error) { return message.ClientState{Own: own}, nil }
}
