package workers_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/net/natsserver"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/workers"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// States of 20 MB of six clients go to one worker and back over TLS, over a link that is cut many times. The state of a
// client is read only when a slot will soon be free for its job, so that few are in memory. No file is left.
func TestDispatcherLargeStates(t *testing.T) {
	const size, clients = 20e6, 6
	ca, log := nettest.NewAuthority(t), &nettest.Logs{}
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	emb, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", TLS: ca.TLS("server"), Log: log.Logger()})
	goldentest.NoError(t, err)
	e := nettest.Method("promptfl", nil, nil).Experiment(t)
	d, err := workers.Open(ctx, emb.Conn(), workers.Settings{Queue: "toy", Config: []byte("x"),
		Compatibility: compatibility(e), Log: log.Logger()})
	goldentest.NoError(t, err)
	link := &nettest.SlowLink{To: strings.TrimPrefix(strings.TrimPrefix(emb.URL(), "nats://"), "tls://"),
		Rate: 100e6, Every: 70e6}
	address := link.Start(t)
	w := workers.Worker{Queue: "toy", Program: "1", Log: log.Logger()}
	nc, err := workers.Connect(ctx, "tls://"+address, "worker", true, log.Logger(), nats.Secure(ca.TLS("worker")))
	goldentest.NoError(t, err)
	defer nc.Close()
	inv, err := w.FetchInvitation(ctx, nc)
	goldentest.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(ctx, nc, inv, workers.Info{Host: "h", Jobs: 1, Compatibility: compatibility(e)},
			func(_ context.Context, client int, o message.Instruction, s message.ClientState) (message.Reply,
				*message.ClientState, error) {
				s.Own["ctx"].Data[1]++
				return message.Reply{Client: client, Upload: method.Upload{Client: client, N: 1, Shared: o.Shared}}, &s,
					nil
			})
	}()
	var read, most atomic.Int64
	var all sync.WaitGroup
	for k := range clients {
		all.Go(func() {
			o := message.Instruction{Kind: message.Train, Total: clients, Clients: []int{k},
				Shared: tensor.Map{"ctx": tensor.New(16, 512)}}
			_, next, err := d.Execute(ctx, &spec.Client{ID: k}, o, func() (message.ClientState, error) {
				if n := read.Add(1) - int64(d.Totals().Jobs); n > most.Load() {
					most.Store(n)
				}
				own := tensor.New(size / 4)
				own.Data[0], own.Data[1] = float32(k), float32(10*k)
				return message.ClientState{Own: tensor.Map{"ctx": own}}, nil
			})
			if err != nil {
				t.Error(err)
				return
			}
			if own := next.Own["ctx"].Data; len(own) != size/4 || own[0] != float32(k) || own[1] != float32(10*k+1) {
				t.Errorf("client %d got back %v", k, own[:2])
			}
		})
	}
	all.Wait()
	if most.Load() > 1 {
		t.Errorf("%d states of jobs without a result were read for one slot", most.Load())
	}
	if n := d.Totals(); n.Jobs != clients || n.Failed > 0 || link.Cuts.Load() < 3 {
		t.Errorf("%+v, %d cuts", n, link.Cuts.Load())
	}
	d.Close()
	if err := <-ended; !errors.Is(err, workers.ErrRunOver) {
		t.Errorf("the worker says %v", err)
	}
	emb.Close()
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}
