package transport_test

import (
	"context"
	"math"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/secure"
	"promptfed/federation/transport"
)

// With secure aggregation the network gives the bytes of one process too, and both are what plain uploads give but for
// the rounding of the masked numbers.
func TestSealedSameBytes(t *testing.T) {
	for _, s := range []stack{{"promptfl", nil, map[string]any{"tokens": 2}}, fedpha, {"pfeddc", nil, nil}} {
		t.Run(s.method, func(t *testing.T) {
			plain, err := engine.Run(context.Background(), s.toy(t), engine.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			e := s.toy(t)
			e.Secure = "on"
			config := secure.Defaults()
			config.Threshold = 0.6
			layer, err := secure.New(config, secure.Examples, nil, len(e.Clients), 3)
			if err != nil {
				t.Fatal(err)
			}
			sealed, err := engine.Run(context.Background(), e, engine.Settings{Guard: layer.Guard(),
				Around: layer.Around})
			if err != nil {
				t.Fatal(err)
			}
			for name, v := range plain.Prompts {
				for i, x := range v.Data {
					if d := math.Abs(float64(x - sealed.Prompts[name].Data[i])); d > 1e-3 {
						t.Fatalf("%s: element %d is off by %g", name, i, d)
					}
				}
			}
			site := newSite(t, e)
			site.set.Sealed = true
			site.part = func(_ int, p transport.Local) transport.Part {
				p.Worker = engine.NewWorker(e, engine.Settings{Guard: layer.Guard()})
				return p
			}
			site.run(func(_ *transport.Settings, run *engine.Settings) { run.Around = layer.Around })
			if !t.Failed() && site.learned() != bytesOf(t, sealed.Prompts) {
				t.Error("other bytes than in one process")
			}
		})
	}
}
