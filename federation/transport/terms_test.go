package transport_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/transport"
)

// What clients measure of the terms of their losses, and the bytes that count as uploads, are those of one process
// through encoded messages, over NATS and on workers; a client that measures nothing is left out.
func TestTermsTravel(t *testing.T) {
	s := stack{"fedpha", []string{"scaffold"}, fedpha.options}
	r, err := engine.Run(context.Background(), s.toy(t), engine.Settings{Terms: true})
	if err != nil {
		t.Fatal(err)
	}
	prompts, want := bytesOf(t, r.Prompts), timeless(t, r.Records)
	if n := len(r.Records[2].Terms); n != 5 {
		t.Fatalf("%d terms, want those of fedpha and scaffold's correction", n)
	}
	looped, err := engine.Run(context.Background(), s.toy(t), engine.Settings{Terms: true, Encode: true})
	if err != nil || timeless(t, looped.Records) != want {
		t.Errorf("through messages, %v", err)
	}

	measure := func(_ *transport.Settings, set *engine.Settings) { set.Terms = true }
	for _, silent := range []int{-1, 2} {
		site := newSite(t, s.toy(t))
		site.each = func(client int, _ *transport.Card, l *transport.Local) { l.Worker.Terms = client != silent }
		site.run(measure)
		if t.Failed() {
			return
		}
		if got := site.records(); site.learned() != prompts || (got == want) != (silent < 0) || !strings.Contains(got,
			`"name":"correction"`) {
			t.Errorf("without client %d:\n%s\n%s", silent, got, want)
		}
	}

	f := newFarm(t, s.toy(t))
	f.each.Terms = true
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	defer cancel()
	f.start(ctx, 0, 2)
	if _, got, _, err := f.run(ctx, func(set *engine.Settings) { set.Terms = true }); err != nil || got != want {
		t.Errorf("on a worker, %v\n%s\n%s", err, got, want)
	}
}
