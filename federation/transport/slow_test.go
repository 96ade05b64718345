package transport_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/methodtest"
	"promptfed/federation/transport"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/natsserver"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
	"promptfed/runtime/tensor"
)

// Orders and replies of 20 and 60 MB arrive over TLS, over a slow link that is cut several times on the way, and what
// came before a cut is not sent again. A client's folder has nothing of it left, nor has the server's.
func TestLargeObjects(t *testing.T) {
	t.Parallel() // it waits for a slow line
	for _, c := range []struct {
		size int     // bytes
		rate float64 // bytes a second each way
	}{{20e6, 8e6}, {60e6, 24e6}} {
		t.Run(fmt.Sprint(c.size/1e6, " MB"), func(t *testing.T) {
			ca, log := transporttest.NewAuthority(t), &transporttest.Logs{}
			ctx, cancel := context.WithCancel(transporttest.TestContext(t))
			defer cancel()
			emb, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Run: "toy", Limit: 1 << 20,
				TLS: ca.TLS("server"), Log: log.Logger()})
			if err != nil {
				t.Fatal(err)
			}
			defer emb.Close()
			e := transporttest.Method("promptfl", nil, nil).Experiment(t)
			dir := t.TempDir()
			h, err := transport.Open(ctx, emb.Conn(), transport.Settings{Name: "toy", ID: subjects.NewID(),
				Dir: filepath.Join(dir, "hub"), Clients: 1, Quorum: 1,
				RunSpec: open(e.RunSpec()), Method: e.Method, Identity: ca.Identity("server"), Log: log.Logger()})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			link := &transporttest.SlowLink{To: strings.TrimPrefix(strings.TrimPrefix(emb.URL(), "nats://"), "tls://"),
				Rate:  c.rate,
				Every: int64(c.size) * 3 / 5}
			address := link.Start(t)
			ended := make(chan error, 1)
			go func() {
				nc, err := exchange.Dial(ctx, "tls://"+address, "test", log.Logger(),
					nats.CustomInboxPrefix(subjects.InboxOf("toy", 0)), nats.Secure(ca.TLS("client-0")))
				if err != nil {
					ended <- err
					return
				}
				defer nc.Close()
				inv, err := transport.FetchInvitation(ctx, nc, "toy", 0, ca.Identity("client-0"),
					exchange.DefaultLargest, log.Logger())
				if err != nil {
					ended <- err
					return
				}
				task := methodtest.ClientsOfOneBackbone(1)[0].Backbone.Task()
				task.Backbone = "toy"
				card := protocol.JoinRequest{RunSpec: e.RunSpec(), Participant: message.Participant{Task: task},
					Examples: 1}
				a, err := transport.NewClient(nc, inv, card, filepath.Join(dir, "client"), echo(0), log.Logger())
				if err == nil {
					err = a.Run(ctx)
				}
				ended <- err
			}()
			if _, err := h.Wait(ctx, 1); err != nil {
				t.Fatal(err, log.String())
			}
			big := tensor.New(c.size / 4)
			for i := range big.Data {
				big.Data[i] = float32(i % 1013)
			}
			o := message.Instruction{Kind: message.Train, Total: 1, Clients: []int{0}, Shared: tensor.Map{"ctx": big}}
			replies, err := h.Run(ctx, o)
			if err != nil || len(replies) != 1 {
				t.Fatal(len(replies), err, log.String())
			}
			back := replies[0].Upload.Shared["ctx"]
			for i, x := range big.Data {
				if back.Data[i] != x {
					t.Fatalf("element %d came back as %v", i, back.Data[i])
				}
			}
			t.Logf("%d cuts, %.2f times the bytes", link.Cuts.Load(), float64(link.Sum.Load())/float64(2*c.size))
			if link.Cuts.Load() < 3 || float64(link.Sum.Load()) > 1.1*float64(2*c.size) {
				t.Errorf("%d cuts, %d bytes passed for %d there and back", link.Cuts.Load(), link.Sum.Load(), c.size)
			}
			for _, d := range []string{"hub/pieces", "client"} {
				if left, _ := filepath.Glob(filepath.Join(dir, d, "order-*")); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			}
			if info, err := os.Stat(filepath.Join(dir, "client")); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			cancel()
			<-ended
		})
	}
}
