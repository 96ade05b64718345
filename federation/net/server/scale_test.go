//go:build unix

package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// echo is a client that trains nothing and uploads what it got.
type echo int

func (echo) Rounds() int { return 0 }

func (e echo) Execute(_ context.Context, o message.Instruction, _ message.ClientState) (message.Reply,
	*message.ClientState, error) {
	r := message.Reply{Client: int(e), Upload: method.Upload{Client: int(e), N: 1, Shared: o.Shared}}
	return r, &message.ClientState{Own: o.Shared}, nil
}

func (e echo) Finish(message.Instruction, message.ClientState) error { return nil }

// Many clients in one process, as many as PROMPTFED_TEST_CLIENTS says, each with a connection and a folder of its own,
// train on prompts of 16 x 512 over TCP; with -v it tells what that costs.
func TestManyClients(t *testing.T) {
	clients := 40
	if n, err := strconv.Atoi(os.Getenv("PROMPTFED_TEST_CLIENTS")); err == nil {
		clients = n
	}
	e := nettest.Method("promptfl", nil, nil).Experiment(t)
	log := slog.New(slog.DiscardHandler)
	ctx := busytest.Context(t)
	h, err := server.Open(server.Settings{Name: "many", Listen: "127.0.0.1:0", ID: wire.NewID(), Clients: clients,
		Quorum: 1, KeepQuorum: true, RunSpec: open(e.RunSpec()), Method: e.Method})
	goldentest.NoError(t, err)
	defer h.Close()
	task := methodtest.ClientsOfOneBackbone(1)[0].Backbone.Task()
	task.Backbone = "toy"
	dir := t.TempDir()
	var all sync.WaitGroup
	began := time.Now()
	for k := range clients {
		all.Go(func() {
			state := filepath.Join(dir, fmt.Sprint(k))
			who, err := certs.Identity{}.WithKey(state)
			if err != nil {
				t.Error(err)
				return
			}
			l := &netclient.Link{URL: h.URL(), Name: certs.UserOf(k), Identity: who, Log: log}
			defer l.Close()
			inv, err := netclient.FetchInvitation(ctx, l, wire.DefaultLargest)
			if err != nil {
				t.Error(err)
				return
			}
			a, err := netclient.NewClient(inv, wire.JoinRequest{RunSpec: e.RunSpec(),
				Participant: message.Participant{Task: task}, Examples: 1}, state, echo(k), log)
			if err == nil {
				err = a.Run(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := h.Wait(ctx, clients); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d clients joined in %v", clients, time.Since(began).Round(time.Millisecond))
	o := message.Instruction{Kind: message.Train, Total: clients, Shared: tensor.Map{"ctx": tensor.New(16, 512)}}
	for k := range clients {
		o.Clients = append(o.Clients, k)
	}
	const rounds = 3
	began, used := time.Now(), cpu(t)
	for o.Round = range rounds {
		replies, err := h.Run(ctx, o)
		if err != nil || len(replies) != clients {
			t.Fatal(len(replies), err)
		}
		goldentest.NoError(t, h.Accept(o.Round, o.Clients))
		if _, err := h.Save(); err != nil {
			t.Fatal(err)
		}
	}
	per := (cpu(t) - used) / time.Duration(rounds*clients)
	t.Logf("%d rounds in %v; %v of CPU an upload, of the server and the client together", rounds,
		time.Since(began).Round(time.Millisecond), per)
	if got := h.Totals(); got.Replies != int64(rounds*clients) ||
		float64(got.BytesUp) > 1.03*float64(got.Replies)*4*16*512 {
		t.Errorf("%+v", got)
	}
	err = h.Finish(ctx, rounds, func(int) (tensor.Map, tensor.Map, error) { return o.Shared, nil, nil })
	goldentest.NoError(t, err)
	all.Wait()
}

// cpu is what this process used of the processors so far.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	goldentest.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
