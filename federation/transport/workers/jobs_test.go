package workers

import (
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/method"
	"promptfed/federation/transport/messages"
	"promptfed/federation/transport/transporttest"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// aJob is a job as a worker gets it, and its result as the run does.
func aJob(t testing.TB) (job, back []byte) {
	t.Helper()
	shared, private := tensor.Map{"ctx": tensor.Of([]float32{1, 2}, 2)}, tensor.Map{"local": tensor.Scalar(3)}
	in := engine.Order{Kind: engine.Train, Round: 2, Clients: []int{1}, Of: 3, Shared: shared,
		Each: map[int]tensor.Map{1: {"e": tensor.Scalar(4)}}}
	body, err := encodeJob(in, engine.State{Private: private})
	if err != nil {
		t.Fatal(err)
	}
	o := messages.Order{Run: strings.Repeat("a", 32), Kind: string(in.Kind), Round: 2, Client: 1, Of: 3}
	o.SetBody(body)
	o.ID = o.Identity()
	out := engine.Reply{Upload: method.Upload{Shared: shared}}
	tensors, err := wire.Encode(encodeResult(out, &engine.State{Private: private, Own: shared}))
	if err != nil {
		t.Fatal(err)
	}
	r := messages.Reply{Run: o.Run, ID: o.ID, Try: o.Run, Client: 1, N: 9}
	r.SetBody(tensors)
	return transporttest.Pack(t, messages.OrderMessage, o, body), transporttest.Pack(t, messages.ReplyMessage, r,
		tensors)
}

func readJob(b []byte) (engine.Order, engine.State, error) {
	var o messages.Order
	body, err := transporttest.Read(messages.OrderMessage, b, &o)
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		return engine.Order{}, engine.State{}, err
	}
	return decodeJob(o, body)
}

func readResult(b []byte) (engine.Reply, *engine.State, error) {
	var r messages.Reply
	body, err := transporttest.Read(messages.ReplyMessage, b, &r)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return engine.Reply{}, nil, err
	}
	return decodeResult(r, engine.Order{Kind: engine.Train, Shared: tensor.Map{"ctx": tensor.New(2)}}, body)
}

func TestJobRoundTrip(t *testing.T) {
	job, back := aJob(t)
	o, s, err := readJob(job)
	if err != nil || o.Round != 2 || o.Clients[0] != 1 || o.Shared["ctx"].Data[1] != 2 || o.Each[1]["e"].Data[0] != 4 ||
		s.Private["local"].Data[0] != 3 {
		t.Errorf("%+v, %+v, %v", o, s, err)
	}
	r, next, err := readResult(back)
	if err != nil || r.Upload.N != 9 || r.Upload.Shared["ctx"].Data[0] != 1 || next.Own["ctx"].Data[1] != 2 ||
		next.Private["local"].Data[0] != 3 {
		t.Errorf("%+v, %+v, %v", r, next, err)
	}
}

func FuzzJob(f *testing.F) {
	job, back := aJob(f)
	f.Add(job)
	f.Add(back)
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, s, err := readJob(transporttest.Signed(messages.OrderMessage, b)); err == nil {
			if n := o.Tensors().Bytes() + s.Tensors().Bytes(); n > 8*len(b) {
				t.Fatalf("%d bytes became %d", len(b), n)
			}
		}
		if r, next, err := readResult(transporttest.Signed(messages.ReplyMessage, b)); err == nil {
			if n := r.Tensors().Bytes() + next.Tensors().Bytes(); n > 8*len(b) || r.Upload.Shared["ctx"] == nil {
				t.Fatalf("%d bytes became %d", len(b), n)
			}
		}
	})
}
