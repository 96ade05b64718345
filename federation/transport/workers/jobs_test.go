package workers

import (
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/transporttest"
	"promptfed/runtime/tensor"
)

// aJob is a job as a worker gets it, and its result as the run does.
func aJob(t testing.TB) (job, back []byte) {
	t.Helper()
	shared, private := tensor.Map{"ctx": tensor.Of([]float32{1, 2}, 2)}, tensor.Map{"local": tensor.Scalar(3)}
	in := message.Instruction{Kind: message.Train, Round: 2, Clients: []int{1}, Total: 3, Shared: shared,
		PerClient: map[int]tensor.Map{1: {"e": tensor.Scalar(4)}}}
	body, err := encodeJob(in, message.ClientState{Private: private})
	if err != nil {
		t.Fatal(err)
	}
	o := protocol.Instruction{Run: strings.Repeat("a", 32), Kind: string(in.Kind), Round: 2, Client: 1, Total: 3}
	o.SetBody(body)
	o.ID = o.Identity()
	out := message.Reply{Upload: method.Upload{Shared: shared}}
	tensors, err := message.EncodeTensors(encodeResult(out, &message.ClientState{Private: private, Own: shared}))
	if err != nil {
		t.Fatal(err)
	}
	r := protocol.Reply{Run: o.Run, ID: o.ID, Try: o.Run, Client: 1, N: 9}
	r.SetBody(tensors)
	return transporttest.Pack(t, protocol.InstructionMessage, o, body), transporttest.Pack(t, protocol.ReplyMessage, r,
		tensors)
}

func readJob(b []byte) (message.Instruction, message.ClientState, error) {
	var o protocol.Instruction
	body, err := transporttest.Read(protocol.InstructionMessage, b, &o)
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		return message.Instruction{}, message.ClientState{}, err
	}
	return decodeJob(o, body)
}

func readResult(b []byte) (message.Reply, *message.ClientState, error) {
	var r protocol.Reply
	body, err := transporttest.Read(protocol.ReplyMessage, b, &r)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return message.Reply{}, nil, err
	}
	return decodeResult(r, message.Instruction{Kind: message.Train, Shared: tensor.Map{"ctx": tensor.New(2)}}, body)
}

func TestJobRoundTrip(t *testing.T) {
	job, back := aJob(t)
	o, s, err := readJob(job)
	if err != nil || o.Round != 2 || o.Clients[0] != 1 || o.Shared["ctx"].Data[1] != 2 ||
		o.PerClient[1]["e"].Data[0] != 4 ||
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
		if o, s, err := readJob(transporttest.Signed(protocol.InstructionMessage, b)); err == nil {
			if n := o.Tensors().Bytes() + s.Tensors().Bytes(); n > 8*len(b) {
				t.Fatalf("%d bytes became %d", len(b), n)
			}
		}
		if r, next, err := readResult(transporttest.Signed(protocol.ReplyMessage, b)); err == nil {
			if n := r.Tensors().Bytes() + next.Tensors().Bytes(); n > 8*len(b) || r.Upload.Shared["ctx"] == nil {
				t.Fatalf("%d bytes became %d", len(b), n)
			}
		}
	})
}
