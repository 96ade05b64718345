package workers

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

var store tensorStore // without objects

// aJob returns a job as a worker gets it, and its result as the run does.
func aJob(t testing.TB) (order, back *nats.Msg) {
	t.Helper()
	store.limit = DefaultLimit
	shared, private := tensor.Map{"ctx": tensor.Of([]float32{1, 2}, 2)}, tensor.Map{"local": tensor.Scalar(3)}
	in := message.Instruction{Kind: message.Test, Round: 2, Set: "\u00e9t\u00e9", Clients: []int{1}, Total: 3,
		Shared: shared, PerClient: map[int]tensor.Map{1: {"e": tensor.Scalar(4)}}}
	common, err := encodeCommon(in)
	goldentest.NoError(t, err)
	own, err := encodeOwn(in, message.ClientState{Private: private})
	goldentest.NoError(t, err)
	order, err = pack("job", "1", job{Instruction: withoutTensors(in), Common: content{Size: len(common)},
		Own: content{Size: len(own)}}, common, own)
	goldentest.NoError(t, err)
	upload := method.Upload{Client: 1, N: 9, Shared: shared}
	header, tensors, err := encodeResult(message.Reply{Client: 1, Upload: upload},
		&message.ClientState{Private: private, Own: shared})
	goldentest.NoError(t, err)
	back, err = pack("result", "1", result{Reply: header, Tensors: content{Size: len(tensors)}}, tensors)
	goldentest.NoError(t, err)
	return order, back
}

func readJob(t testing.TB, m *nats.Msg) (message.Instruction, message.ClientState, error) {
	var j job
	if err := unpack(m.Header, &j); err != nil {
		return j.Instruction, message.ClientState{}, err
	}
	var shared sharedTensors
	common, data, err := shared.get(t.Context(), store, j.Common, m.Data)
	if err != nil {
		return j.Instruction, message.ClientState{}, err
	}
	own, _, err := store.get(t.Context(), j.Own, data)
	if err != nil {
		return j.Instruction, message.ClientState{}, err
	}
	return decodeJob(j.Instruction, common, own)
}

func readResult(t testing.TB, m *nats.Msg) (message.Reply, *message.ClientState, error) {
	var r result
	if err := unpack(m.Header, &r); err != nil {
		return message.Reply{}, nil, err
	}
	b, _, err := store.get(t.Context(), r.Tensors, m.Data)
	if err != nil {
		return message.Reply{}, nil, err
	}
	return decodeResult(message.Instruction{Kind: message.Train, Clients: []int{1},
		Shared: tensor.Map{"ctx": tensor.New(2)}}, r.Reply, b)
}

func TestJobRoundTrip(t *testing.T) {
	order, back := aJob(t)
	o, s, err := readJob(t, order)
	if err != nil || o.Round != 2 || o.Set != "\u00e9t\u00e9" || o.Clients[0] != 1 || o.Shared["ctx"].Data[1] != 2 ||
		o.PerClient[1]["e"].Data[0] != 4 || s.Private["local"].Data[0] != 3 {
		t.Errorf("%+v, %+v, %v", o, s, err)
	}
	r, next, err := readResult(t, back)
	if err != nil || r.Upload.N != 9 || r.Upload.Shared["ctx"].Data[0] != 1 || next.Own["ctx"].Data[1] != 2 ||
		next.Private["local"].Data[0] != 3 {
		t.Errorf("%+v, %+v, %v", r, next, err)
	}
}

func FuzzJob(f *testing.F) {
	for _, m := range []func() *nats.Msg{func() *nats.Msg { m, _ := aJob(f); return m },
		func() *nats.Msg { _, m := aJob(f); return m }} {
		f.Add(m().Header.Get(jsonHeader), m().Data)
	}
	f.Fuzz(func(t *testing.T, header string, b []byte) {
		m := &nats.Msg{Header: nats.Header{jsonHeader: {header}}, Data: b}
		if o, s, err := readJob(t, m); err == nil {
			if n := o.Tensors().Bytes() + s.Tensors().Bytes(); n > 8*len(b) {
				t.Fatalf("%d bytes became %d", len(b), n)
			}
		}
		if r, next, err := readResult(t, m); err == nil {
			if n := r.Tensors().Bytes() + next.Tensors().Bytes(); n > 8*len(b) || r.Upload.Shared["ctx"] == nil {
				t.Fatalf("%d bytes became %d", len(b), n)
			}
		}
	})
}

// A header states how much of a message are tensors: none, all, but not more and not less than none.
func TestTensorsOfAMessage(t *testing.T) {
	for size, want := range map[int]string{0: " abc", 2: "ab c", 3: "abc ", 4: "its header states 4", -1: "states -1"} {
		tensors, rest, err := store.get(t.Context(), content{Size: size}, []byte("abc"))
		got := string(tensors) + " " + string(rest)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasSuffix(got, want) {
			t.Errorf("%d bytes: %s, want %s", size, got, want)
		}
	}
}

// The jobs of an instruction share its tensors, which are kept until the last of them ends.
func TestCommonTensorsOfJobs(t *testing.T) {
	d, o := &Dispatcher{}, message.Instruction{Shared: tensor.Map{"ctx": tensor.New(2)}}
	first := d.holdCommon(o)
	for range 2 {
		if d.holdCommon(o) != first {
			t.Error("a job has tensors of its own")
		}
		d.releaseCommon(first)
	}
	if d.releaseCommon(first); len(d.commons) > 0 {
		t.Error("the tensors are kept without a job")
	}
}
