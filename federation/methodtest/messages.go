package methodtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// messages: encoding messages, a trace and 8 workers change nothing; messages hold the tensors that the method
// declares, and no private or kept tensor, by name or by content.
func (c Case) messages(t *testing.T) {
	type upload struct {
		client int
		bytes  []byte
	}
	var mu sync.Mutex
	var sent []upload
	rec := trace.NewRecorder()
	experiment := c.experiment(t)
	set := engine.Settings{Client: client.Settings{Tracer: rec}, Workers: 8, Encode: true}
	set.Executor = Uploads(t, experiment, set.Client, func(client int, m []byte) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, upload{client, slices.Clone(m)})
	})

	encoded := outcomeOf(t, run(t, experiment, set))
	c.plain(t).same(t, encoded, "values, and encoded messages with 8 workers")
	if len(sent) == 0 {
		t.Fatal("no message was seen")
	}

	var secret []string
	for name := range rec.Tensors {
		_, part, _ := strings.Cut(name, "/c")
		for _, p := range c.Names.Private {
			if strings.HasSuffix(part, "begin/"+p) || strings.HasSuffix(part, "after/"+p) {
				secret = append(secret, name)
			}
		}
	}

	if len(c.Names.Private) > 0 && len(secret) == 0 {
		t.Fatal("the trace has no private tensor to look for")
	}

	for _, upload := range sent {
		got, err := message.DecodeTensors(upload.bytes)
		goldentest.NoError(t, err)

		if err := declared(experiment, experiment.Clients[upload.client], got.WithoutPrefix("extra")); err != nil {
			t.Error(err)
		}

		for _, name := range got.Names() {
			part, rest, _ := strings.Cut(name, "/")
			if part == "shared" && slices.Contains(c.Names.Shared, rest) || part == "extra" ||
				part == "packed" && experiment.Method.Codec() != nil {
				continue
			}
			t.Errorf("a message holds %s", name)
		}

		for _, name := range secret {
			rows := 1
			if slices.ContainsFunc(c.Names.Exchanged, func(p string) bool { return strings.HasSuffix(name, "/"+p) }) {
				rows = rec.Tensors[name].Shape[0] // some may be there, not all
			}
			holds := true
			for i := range rows {
				row := rec.Tensors[name].Row(i)
				holds = holds && row.MaxAbs() > 0 && bytes.Contains(upload.bytes, raw(row)) // zeros are everywhere
			}
			if holds {
				t.Errorf("a message holds the content of %s", name)
			}
		}
	}
}

// declared reports extras that differ from those that the method declares for an upload or an answer.
func declared(experiment *spec.Experiment, site *spec.Client, extra tensor.Map) error {
	task := experiment.Task(site)
	err := message.CheckExtras(experiment.Method.Extras(task), extra, site.Train.Len())
	for _, q := range slices.Concat(experiment.Method.Statistics(0), experiment.Method.Statistics(1)) {
		if message.CheckExtras(q.Answer(task), extra, site.Train.Len()) == nil {
			return nil
		}
	}

	return err
}

func raw(t *tensor.Tensor) []byte {
	var b []byte
	for _, v := range t.Data {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func equal(a, b *tensor.Tensor) bool {
	return a != nil && b != nil && a.SameShape(b) && bytes.Equal(raw(a), raw(b)) && slices.Equal(a.Ints, b.Ints)
}

// readOnly reports a tensor of an instruction or of an upload that a client, the server or the method changes in place.
type readOnly struct {
	message.Cohort
	t    *testing.T
	seen []content
}

type content struct {
	tensors tensor.Map
	bytes   []byte
}

func contentOf(t *testing.T, m tensor.Map) content {
	b, err := message.EncodeTensors(m)
	if err != nil {
		t.Error(err)
	}
	return content{m, b}
}

func (c *readOnly) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	c.seen = append(c.seen, contentOf(c.t, instruction.Tensors()))
	replies, err := c.Cohort.Run(ctx, instruction)
	for _, r := range replies {
		c.seen = append(c.seen, contentOf(c.t, message.UploadTensors(r.Upload)))
	}
	return replies, err
}

func (c *readOnly) Accept(round int, clients []int) error {
	for _, was := range c.seen {
		if now := contentOf(c.t, was.tensors); !bytes.Equal(now.bytes, was.bytes) {
			c.t.Errorf("round %d: a tensor of %v was changed in place", round, was.tensors.Names())
		}
	}
	return c.Cohort.Accept(round, clients)
}
