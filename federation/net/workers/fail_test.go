package workers

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/natsserver"
	"promptfed/runtime/busytest"
	"promptfed/runtime/tensor"
)

// A run that can get no more results ends, with the reason, although its jobs wait for a NATS server that does not
// store them: small ones for the stream, and large ones for the object store.
func TestFailEndsWaitingJobs(t *testing.T) {
	for _, limit := range []int{0, 1} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			n, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			ctx := busytest.Context(t)
			d, err := Open(ctx, n.Conn(), Settings{Queue: "toy", Limit: limit, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			d.stop() // nothing makes the streams again
			d.over.Wait()
			if err := d.deleteStreams(ctx); err != nil {
				t.Fatal(err)
			}
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
