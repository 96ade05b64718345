package transport

import (
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// aTurn is a turn as a worker gets it, and its result as the run does.
func aTurn(t testing.TB) (turn, result []byte) {
	t.Helper()
	shared, private := tensor.Map{"ctx": tensor.Of([]float32{1, 2}, 2)}, tensor.Map{"local": tensor.Scalar(3)}
	in := engine.Order{Kind: engine.Train, Round: 2, Clients: []int{1}, Of: 3, Shared: shared,
		Each: map[int]tensor.Map{1: {"e": tensor.Scalar(4)}}}
	body, err := encodeTurn(in, engine.State{Private: private})
	if err != nil {
		t.Fatal(err)
	}
	o := order{Run: strings.Repeat("a", 32), Kind: string(in.Kind), Round: 2, Client: 1, Of: 3}
	o.of(body)
	o.ID = o.identity()
	out := engine.Reply{Upload: method.Upload{Shared: shared}}
	back, err := encodeResult(out, &engine.State{Private: private, Own: shared})
	if err != nil {
		t.Fatal(err)
	}
	r := reply{Run: o.Run, ID: o.ID, Try: o.Run, Client: 1, N: 9}
	r.of(back)
	turn, err = pack(checksum.signer, turnMessage, o, body)
	if err != nil {
		t.Fatal(err)
	}
	if result, err = pack(checksum.signer, resultMessage, r, back); err != nil {
		t.Fatal(err)
	}
	return turn, result
}

func readTurn(b []byte) (engine.Order, engine.State, error) {
	var o order
	body, err := unpack(checksum.verifier, turnMessage, b, &o)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return engine.Order{}, engine.State{}, err
	}
	return o.decodeTurn(body)
}

func readResult(b []byte) (engine.Reply, *engine.State, error) {
	var r reply
	body, err := unpack(checksum.verifier, resultMessage, b, &r)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return engine.Reply{}, nil, err
	}
	return r.decodeResult(engine.Order{Kind: engine.Train, Shared: tensor.Map{"ctx": tensor.New(2)}}, body)
}

func TestTurnRoundTrip(t *testing.T) {
	turn, result := aTurn(t)
	o, s, err := readTurn(turn)
	if err != nil || o.Round != 2 || o.Clients[0] != 1 || o.Shared["ctx"].Data[1] != 2 || o.Each[1]["e"].Data[0] != 4 ||
		s.Private["local"].Data[0] != 3 {
		t.Errorf("%+v, %+v, %v", o, s, err)
	}
	r, next, err := readResult(result)
	if err != nil || r.Upload.N != 9 || r.Upload.Shared["ctx"].Data[0] != 1 || next.Own["ctx"].Data[1] != 2 ||
		next.Private["local"].Data[0] != 3 {
		t.Errorf("%+v, %+v, %v", r, next, err)
	}
	if id, try := turnOf(resultID(strings.Repeat("1", 32), strings.Repeat("2", 32))); id[0] != '1' || try[0] != '2' {
		t.Errorf("%s, %s", id, try)
	}
	for _, bad := range []string{"", "1", strings.Repeat("x", 64)} {
		if id, _ := turnOf(bad); id != "" {
			t.Errorf("%q is taken for %q", bad, id)
		}
	}
}

func FuzzTurn(f *testing.F) {
	turn, result := aTurn(f)
	f.Add(turn)
	f.Add(result)
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, s, err := readTurn(b); err == nil {
			if n := o.Tensors().Bytes() + s.Tensors().Bytes(); n > 8*len(b) {
				t.Fatalf("%d bytes became %d", len(b), n)
			}
		}
		if r, next, err := readResult(b); err == nil {
			if n := r.Tensors().Bytes() + next.Tensors().Bytes(); n > 8*len(b) || r.Upload.Shared["ctx"] == nil {
				t.Fatalf("%d bytes became %d", len(b), n)
			}
		}
	})
}
