package methodtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// trace: a trace holds the tensors that the contract of the trace folder names, no others, in the stated shapes; images
// are unit rows; and a client's upload and the next round's start follow from it.
func (c Case) trace(t *testing.T) {
	e := c.all(t)
	e.Plan.TestEvery = 1
	rec := trace.NewRecorder()
	c.run(t, e, engine.Settings{Workers: 4, Tracer: rec})

	want := map[string]bool{}
	add := func(at string, names ...string) {
		for _, n := range names {
			want[at+n] = true
		}
	}
	at := func(round int, f func(int) []string) []string {
		if f == nil {
			return nil
		}
		return f(round)
	}
	n := c.Names
	learned := slices.Concat(n.Shared, n.Private)
	add("init/", n.Shared...)
	for r := range 2 {
		for _, client := range e.Clients {
			p := fmt.Sprintf("r%d/c%d/", r, client.ID)
			add(p+"begin/", learned...)
			add(p+"down/", n.Broadcast...)
			add(p+"down/", n.PerClient...)
			if r > 0 {
				add(p+"down/", n.Later...)
			}
			add(p+"kept/", at(r, n.State)...)
			add(p+"upload/", n.Shared...)
			add(p+"upload/", n.Up...)
			add(p+"eval/", "logits", "label", "image")
			add(p+"eval/", n.Reads...)
			if n.Memory {
				add(p+"memory/", "image", "label")
			}
			// Two epochs of batches of 4; a last one that is not full is left out unless it is the only one.
			for s := range 2 * max(1, client.Train.Len()/4) {
				if c.learnsNothing() {
					break
				}
				step := fmt.Sprintf("%ss%d/", p, s)
				add(step, "image", "label", "loss")
				add(step, n.Reads...)
				add(step+"grad/", slices.DeleteFunc(slices.Clone(learned), func(name string) bool {
					return n.Frozen != nil && slices.Contains(n.Frozen(r, s/max(1, client.Train.Len()/4)), name)
				})...)
				add(step+"after/", learned...)
				add(step+"draw/", n.Draw...)
			}
		}
		add(fmt.Sprintf("r%d/merged/", r), n.Shared...)
		add(fmt.Sprintf("r%d/down/", r), n.Broadcast...)
		add(fmt.Sprintf("r%d/kept/", r), at(r, n.ServerState)...)
		if q := n.Statistic; q != nil && (r == 0 || q.Every) {
			at := fmt.Sprintf("r%d/survey/%s/", r, q.Name)
			add(at+"digest/", q.Broadcast...)
			for k := range e.Clients {
				add(fmt.Sprintf("%sc%d/", at, k), append(q.Answer, "image", "label")...)
				add(fmt.Sprintf("%sdigest/c%d/", at, k), q.PerClient...)
				add(fmt.Sprintf("r%d/c%d/down/", r, k), slices.Concat(q.Broadcast, q.PerClient)...)
			}
			if q.Every {
				add(fmt.Sprintf("r%d/down/", r), q.Broadcast...)
			}
		}
	}
	for name := range want {
		if rec.Tensors[name] == nil {
			t.Errorf("the trace lacks %s", name)
		}
	}
	for name, got := range rec.Tensors {
		if !want[name] {
			t.Errorf("the trace has %s", name)
		}
		if strings.HasSuffix(name, "/loss") && !slices.Equal(got.Shape, []int{1}) {
			t.Errorf("%s is %v, want [1]", name, got)
		}
		if strings.HasSuffix(name, "/label") && (!got.IsInt() || len(got.Shape) != 1) {
			t.Errorf("%s is %v, want int64[B]", name, got)
		}
		if strings.HasSuffix(name, "/draw/projector") {
			side, n := Width, len(got.Shape)
			if slices.Contains(c.Names.Reads, method.PixelsInput) {
				side = ToyVision
			}
			if n < 2 || !slices.Equal(got.Shape[n-2:], []int{side, side}) {
				t.Errorf("%s is %v, want [...,%d,%d]", name, got, side, side)
			}
		}
		if strings.HasSuffix(name, "/image") && !(c.Loose && strings.Contains(name, "/s")) {
			unitRows(t, name, got)
		}
	}
	for _, name := range n.Shared {
		last := fmt.Sprintf("r0/c0/s%d/after/%s", 3, name) // client 0 has 9 examples, so 2 batches in each of 2 epochs
		if equal(rec.Tensors[last], rec.Tensors["r0/c0/upload/"+name]) == c.Noised {
			t.Errorf("client 0 uploaded %s as its last step left it: %v, want %v", name, c.Noised, !c.Noised)
		}
	}
	for _, name := range n.Private {
		if equal(rec.Tensors["r0/c0/s3/after/"+name],
			rec.Tensors["r1/c0/begin/"+name]) == slices.Contains(n.Exchanged, name) {
			t.Errorf("client 0 started round 1 from the %s it kept: %v", name, slices.Contains(n.Exchanged, name))
		}
	}
	for _, name := range n.Broadcast {
		if !equal(rec.Tensors["r0/down/"+name], rec.Tensors["r1/c2/down/"+name]) {
			t.Errorf("client 2 did not get %s as the server left it", name)
		}
	}
}

func unitRows(t *testing.T, name string, x *tensor.Tensor) {
	if len(x.Shape) != 2 {
		t.Errorf("%s is %v, want [B,D]", name, x)
		return
	}
	for i := range x.Shape[0] {
		if norm := x.Row(i).Norm(); math.Abs(norm-1) > 1e-5 {
			t.Errorf("%s: row %d has norm %g", name, i, norm)
		}
	}
}
