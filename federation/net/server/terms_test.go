package server_test

import (
	"context"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
)

// The clients' measurements of the terms of their losses, and the bytes that count as uploads, are those of one process
// through encoded messages and over the network. A client that measures nothing is left out.
func TestTermsTravel(t *testing.T) {
	s := nettest.Method("fedpha", []string{"scaffold"}, nettest.FedPHA.Options)
	r := enginetest.Run(t, s.Experiment(t), engine.Settings{Client: client.Settings{Terms: true}})
	prompts, want := nettest.BytesOf(t, r.Prompts), nettest.WithoutTimes(t, r.Records)
	if n := len(r.Records[2].Terms); n != 5 {
		t.Fatalf("%d terms, want those of fedpha and scaffold's correction", n)
	}
	looped, err := engine.Run(context.Background(), s.Experiment(t),
		engine.Settings{Client: client.Settings{Terms: true}, Encode: true})
	if err != nil || nettest.WithoutTimes(t, looped.Records) != want {
		t.Errorf("through messages, %v", err)
	}

	measure := func(_ *server.Settings, set *engine.Settings) { set.Client.Terms = true }
	for _, silent := range []int{-1, 2} {
		site := newSite(t, s.Experiment(t))
		site.each = func(client int, _ *wire.JoinRequest, l *netclient.LocalExecutor) {
			l.Worker.Settings.Terms = client != silent
		}
		site.run(measure)
		if t.Failed() {
			return
		}
		if got := site.records(); site.learned() != prompts || (got == want) != (silent < 0) || !strings.Contains(got,
			`"name":"correction"`) {
			t.Errorf("without client %d:\n%s\n%s", silent, got, want)
		}
	}
}
