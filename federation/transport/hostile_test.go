package transport_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/transport"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// hostile is a client that uploads what it should not.
type hostile struct {
	transport.Local
	kind  engine.Kind
	spoil func(r *engine.Reply)
}

func (h hostile) Answer(ctx context.Context, o engine.Order, s engine.State) (engine.Reply, *engine.State, error) {
	r, next, err := h.Local.Answer(ctx, o, s)
	if err == nil && o.Kind == h.kind {
		h.spoil(&r)
	}
	return r, next, err
}

// What a hostile client uploads is refused and logged; the others learn what they would without it.
func TestHostileUploads(t *testing.T) {
	e := fedpha.toy(t)
	e.Plan.Participation, e.Plan.Rounds = 1, 2
	r, err := engine.Run(context.Background(), e, engine.Settings{Lost: func(_,
		client int) bool {
		return client == 1
	}})
	if err != nil {
		t.Fatal(err)
	}
	for say, spoil := range map[string]func(r *engine.Reply){
		"holds NaN":               func(r *engine.Reply) { r.Upload.Shared["global"].Data[3] = float32(math.NaN()) },
		"moved the parameters":    func(r *engine.Reply) { r.Upload.Shared["global"].Data[3] = 1e9 },
		"for parameter global":    func(r *engine.Reply) { r.Upload.Shared["global"].Shape = []int{r.Upload.Shared["global"].Len()} },
		"another experiment":      func(r *engine.Reply) { r.Upload.Shared["more"] = r.Upload.Shared["global"] },
		"a name has letters":      func(r *engine.Reply) { r.Upload.Shared["../../x"] = r.Upload.Shared["global"] },
		"it must count 1 or more": func(r *engine.Reply) { r.Upload.N = 0 },
		"another type of numbers": func(r *engine.Reply) {
			g := r.Upload.Shared["global"]
			g.Ints,
				g.Data = make([]int64, g.Len()), nil
		},
		"the client joined with 5": func(r *engine.Reply) { r.Upload.N = 1000 },
	} {
		t.Run(say, func(t *testing.T) {
			s := newSite(t, e)
			s.set.Quorum, s.set.MaxNorm, s.set.Deadline = 0.7, 1000, 3*time.Second
			s.part = func(client int, p transport.Local) transport.Part {
				if client == 1 {
					return hostile{p, engine.Train, spoil}
				}
				return p
			}
			s.run()
			got, _, err := safetensors.ReadFile(filepath.Join(s.dir, engine.PromptsFile))
			if err != nil {
				t.Fatal(err)
			}
			if bytesOf(t, got.Under("shared")) != bytesOf(t, r.Prompts.Under("shared")) {
				t.Error("the others learned something else")
			}
			if !strings.Contains(s.log.String(), say) {
				t.Errorf("nothing was logged about %q", say)
			}
		})
	}
}

// Uploads whose extras the method cannot do with are left out, in training and in surveys.
func TestHostileExtras(t *testing.T) {
	for _, c := range []struct {
		of    stack
		kind  engine.Kind
		spoil func(r *engine.Reply)
	}{
		{stack{"promptfl", []string{"scaffold"}, nil}, engine.Train, func(r *engine.Reply) { clear(r.Upload.Extra) }},
		{stack{"promptfl", []string{"scaffold"}, nil}, engine.Train, func(r *engine.Reply) {
			for name := range r.Upload.Extra {
				r.Upload.Extra[name] = tensor.New(1)
			}
		}},
		{stack{"promptfl", []string{"fedproto"}, nil}, engine.Train, func(r *engine.Reply) { clear(r.Upload.Extra) }},
		{stack{"promptfl", []string{"ggtpc"}, nil}, engine.Ask, func(r *engine.Reply) { clear(r.Upload.Extra) }},
	} {
		t.Run(fmt.Sprint(c.of.with, c.kind), func(t *testing.T) {
			e := c.of.toy(t)
			e.Plan.Participation, e.Plan.Rounds = 1, 2
			s := newSite(t, e)
			s.part = func(client int, p transport.Local) transport.Part {
				if client == 1 {
					return hostile{p, c.kind, c.spoil}
				}
				return p
			}
			s.run()
			if !strings.Contains(s.log.String(), `msg="an upload is left out" round=0 client=1`) {
				t.Error("nothing was logged")
			}
			if c.kind == engine.Ask {
				return // its training counts
			}
			r, err := engine.Run(context.Background(), e, engine.Settings{Lost: func(_,
				client int) bool {
				return client == 1
			}})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := safetensors.ReadFile(filepath.Join(s.dir, engine.PromptsFile))
			if err != nil || bytesOf(t, got.Under("shared")) != bytesOf(t, r.Prompts.Under("shared")) {
				t.Errorf("%v: the others learned something else", err)
			}
		})
	}
}
