package secure_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// instantClients is a cohort whose clients answer at once, so that only guards and messages are measured.
type instantClients struct {
	message.Cohort // nil: nothing else is called
	guard          message.Guard
	took           time.Duration // total time of the clients
	dropped        int           // clients that never upload, the last ones
}

// processor returns the processor time of this process, which does not depend on other processes.
func processor() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func (u *instantClients) Accept(int, []int) error { return nil }

func (u *instantClients) Run(_ context.Context, o message.Instruction) ([]message.Reply, error) {
	began := processor()
	defer func() { u.took += processor() - began }()
	var out []message.Reply
	for _, id := range o.Clients {
		one := o.ForClient(id)
		r := message.Reply{Client: id, Down: message.EncodedSize(one.Tensors())}
		if o.Kind == message.Compute {
			answer, _, err := u.guard.Answer(id, one)
			if err != nil {
				return nil, err
			}
			r.Upload = method.Upload{N: 1, Extra: answer}
		} else {
			if id >= o.Total-u.dropped {
				continue
			}
			r.Upload = method.Upload{N: 16, Shared: tensor.Map{"ctx": methodtest.Values(id, 0.1, 16, 512)}}
			if u.guard != nil {
				if err := u.guard.Protect(id, one, &r.Upload, &message.Stats{}); err != nil {
					return nil, err
				}
			}
		}
		r.Up = message.EncodedSize(r.Tensors())
		out = append(out, r)
	}
	return out, nil
}

// BenchmarkRound measures one round of a prompt of 16 x 512 numbers without training: for one client the bytes in both
// directions and the processor time of client and server in milliseconds, without the encoding of messages. Dropped
// clients train and never upload.
func BenchmarkRound(b *testing.B) {
	for _, c := range []struct {
		weighting        string
		clients, dropped int
	}{{"", 10, 0}, {secure.Uniform, 10, 0}, {secure.Examples, 10, 0}, {"", 100, 0}, {secure.Uniform, 100, 0},
		{secure.Examples, 100, 0}, {secure.Uniform, 100, 20}} {
		name := fmt.Sprintf("%s-%d-without-%d", c.weighting, c.clients, c.dropped)
		if c.weighting == "" {
			name = fmt.Sprintf("plain-%d", c.clients)
		}
		b.Run(name, func(b *testing.B) {
			u := &instantClients{dropped: c.dropped}
			var cohort message.Cohort = u
			if c.weighting != "" {
				conf := secure.Defaults()
				conf.Threshold = 0.6
				l, err := secure.New(conf, c.weighting, nil, c.clients, c.clients)
				goldentest.NoError(b, err)
				u.guard, cohort = l.Guard(), l.Wrap(u)
			}
			o := message.Instruction{Kind: message.Train, Total: c.clients, Shared: tensor.Map{"ctx": tensor.New(16,
				512)}}
			for id := range c.clients {
				o.Clients = append(o.Clients, id)
			}
			up, down, began := 0, 0, processor()
			for i := range b.N {
				o.Round = i
				replies, err := cohort.Run(context.Background(), o)
				goldentest.NoError(b, err)
				for _, r := range replies {
					up, down = up+r.Up, down+r.Down
				}
			}
			all := processor() - began
			each := float64(b.N * c.clients)
			b.ReportMetric(float64(up)/each, "up-B/client")
			b.ReportMetric(float64(down)/each, "down-B/client")
			b.ReportMetric(u.took.Seconds()*1e3/each, "client-ms/client")
			b.ReportMetric((all-u.took).Seconds()*1e3/each, "server-ms/client")
			b.ReportMetric(0, "ns/op")
		})
	}
}
