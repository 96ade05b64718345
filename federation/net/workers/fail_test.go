package workers

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/natsserver"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// A run that can get no more results ends, with the reason, although its jobs wait for a NATS server that does not
// store them: small ones for the stream, and large ones for the object store.
func TestFailEndsWaitingJobs(t *testing.T) {
	for _, limit := range []int{0, 1} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			n, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
			goldentest.NoError(t, err)
			defer n.Close()
			ctx := busytest.Context(t)
			d, err := Open(ctx, n.Conn(), Settings{Queue: "toy", Limit: limit, Log: slog.New(slog.DiscardHandler)})
			goldentest.NoError(t, err)
			d.stop() // nothing makes the streams again
			d.over.Wait()
			goldentest.NoError(t, d.deleteStreams(ctx))
			d.members["worker"] = &member{Info: Info{Jobs: 2}}
			execute := func() error {
				o := message.Instruction{Kind: message.Train, Clients: []int{0}, Total: 1,
					Shared: tensor.Map{"ctx": tensor.New(2)}}
				_, _, err := d.Execute(ctx, &spec.Client{ID: 0}, o, func() (message.ClientState, error) {
					return message.ClientState{}, nil
				})
				return err
			}
			ended := make(chan error, 1)
			go func() { ended <- execute() }()
			busytest.Delay(500 * time.Millisecond)
			select {
			case err := <-ended:
				t.Fatalf("it ends before: %v", err)
			default:
			}
			full := errors.New("the disk is full")
			d.fail(full)
			select {
			case err := <-ended:
				if !errors.Is(err, full) {
					t.Errorf("it ends with %v", err)
				}
			case <-busytest.Hung(t):
				t.Fatal("the job waits for ever")
			}
			if err := execute(); !errors.Is(err, full) {
				t.Errorf("the next one ends with %v", err)
			}
		})
	}
}

// A worker whose server's first line is damaged in two connections tries again. One whose server speaks another
// protocol ends.
func TestConnectAgain(t *testing.T) {
	n, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	goldentest.NoError(t, err)
	defer n.Close()
	target := strings.TrimPrefix(n.URL(), "nats://")
	for name, damaged := range map[string]int{"damaged": 2, "foreign": 100} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			goldentest.NoError(t, err)
			defer l.Close()
			tries := atomic.Int32{}
			go func() {
				for {
					from, err := l.Accept()
					if err != nil {
						return
					}
					defer from.Close()
					if try := int(tries.Add(1)); try <= damaged {
						io.WriteString(from, []string{`INFO {"server_id"="x"}`, "INFX {}"}[try%2]+"\r\n")
						from.Close()
						continue
					}
					to, err := net.Dial("tcp", target)
					if err != nil {
						return
					}
					defer to.Close()
					go io.Copy(to, from)
					go io.Copy(from, to)
				}
			}()
			c, err := Connect(busytest.Context(t), "nats://"+l.Addr().String(), "worker", true,
				slog.New(slog.DiscardHandler))
			if err == nil {
				c.Close()
			}
			if (err == nil) != (name == "damaged") || tries.Load() != 3 {
				t.Errorf("%d tries: %v", tries.Load(), err)
			}
		})
	}
}

// A request that the server refuses for a lost stream, or since it has no JetStream now, is repeated, and no other one.
func TestRefusedRequests(t *testing.T) {
	for code, want := range map[int]bool{400: false, 404: true, 503: true} {
		if unavailable(&jetstream.APIError{Code: code}) != want {
			t.Errorf("code %d is repeated: %t", code, !want)
		}
	}
}
