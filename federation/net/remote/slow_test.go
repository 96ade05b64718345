package remote_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/protocol"
	"promptfed/federation/net/remote"
	"promptfed/runtime/busytest"
	"promptfed/runtime/tensor"
)

// windowAndChunk is how many bytes a sender may lose at a cut: a window of the receiver, and a chunk.
const windowAndChunk = 256<<10 + 64<<10

// Tensors of instructions and replies arrive over a slow link that is cut many times: after each chunk, and several
// times in larger tensors. After a cut, the sender continues behind the last chunk that arrived: it sends at most a
// window and a chunk again. No file is left in the folders of the client and the server.
func TestCutLinks(t *testing.T) {
	t.Parallel() // it waits for a slow link
	for name, c := range map[string]struct {
		size  int     // bytes
		rate  float64 // bytes a second in each direction
		every int64   // bytes between two cuts
		cuts  int64   // at least
	}{
		"each chunk": {4 * 64 << 10, 20e6, 80 << 10, 6},
		"20 MB":      {20e6, 16e6, 12e6, 3},
		"60 MB":      {60e6, 48e6, 36e6, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, 1, func(s *remote.Settings) { s.Limit = 1 << 10 })
			ctx, cancel := context.WithCancel(busytest.Context(t))
			defer cancel()
			slow := &nettest.SlowLink{To: strings.TrimPrefix(r.h.URL(), "https://"), Rate: c.rate, Every: c.every}
			link := &remote.Link{URL: "https://" + slow.Start(t), Name: "client-0", Identity: r.ca.Identity("client-0"),
				Log: r.logs.Logger()}
			defer link.Close()
			ended := make(chan error, 1)
			go func() {
				inv, err := remote.FetchInvitation(ctx, link, remote.DefaultLargest)
				if err != nil {
					ended <- err
					return
				}
				a, err := remote.NewClient(inv, r.request(), filepath.Join(r.dir, "client"), echo(0), r.logs.Logger())
				if err == nil {
					err = a.Run(ctx)
				}
				ended <- err
			}()
			if _, err := r.h.Wait(ctx, 1); err != nil {
				t.Fatal(err)
			}
			big := tensor.New(c.size / 4)
			for i := range big.Data {
				big.Data[i] = float32(i % 1013)
			}
			o := message.Instruction{Kind: message.Train, Total: 1, Clients: []int{0}, Shared: tensor.Map{"ctx": big}}
			replies, err := r.h.Run(ctx, o)
			if err != nil || len(replies) != 1 {
				t.Fatal(len(replies), err)
			}
			back := replies[0].Upload.Shared["ctx"]
			for i, x := range big.Data {
				if back.Data[i] != x {
					t.Fatalf("element %d came back as %v", i, back.Data[i])
				}
			}
			cuts, sum := slow.Cuts.Load(), slow.Sum.Load()
			down := r.h.Totals().BytesDown
			t.Logf("%d cuts, %.2f times the bytes", cuts, float64(sum)/float64(2*c.size))
			frames := int64(2*c.size) / 200 // of TLS, HTTP/2 and gRPC: about 0.3 %
			if cuts < c.cuts || sum > int64(2*c.size)+frames+(cuts+1)*windowAndChunk ||
				down > int64(c.size)+(cuts+1)*windowAndChunk {
				t.Errorf("%d cuts; %d bytes passed, and the server sent %d, for %d in each direction", cuts, sum, down,
					c.size)
			}
			for _, d := range []string{"hub/pieces/*", "client/order-*"} {
				if left, _ := filepath.Glob(filepath.Join(r.dir, d)); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			}
			if info, err := os.Stat(filepath.Join(r.dir, "client")); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			cancel()
			<-ended
		})
	}
}

// A stream that ends after every chunk continues at the next one, in both directions, and a new process of a client
// continues with the reply of the one before.
func TestStreamsOfOneChunk(t *testing.T) {
	const numbers, chunk = 100000, 64 << 10 // 7 chunks
	r := newRoom(t, 1, func(s *remote.Settings) { s.Limit = 1 << 10 })
	r.join(0, true).cut()
	replies := r.start(0, numbers)
	var got []byte
	var o *protocol.Instruction
	for o == nil || len(got) < int(o.Content.Size) {
		s := r.rejoin(0)
		o = next(s, (*protocol.ServerMessage).GetInstruction)
		s.sendFetch(o.Content.Sum, uint64(len(got)))
		c := next(s, (*protocol.ServerMessage).GetChunk)
		if int(c.Offset) != len(got) {
			t.Fatalf("the server sends chunks from %d on, not %d", c.Offset, len(got))
		}
		got = append(got, c.Data...)
		s.cut()
	}
	if protocol.Checksum(got) != o.Content.Sum {
		t.Error("other tensors arrived")
	}
	for at, body := 0, []byte(nil); at == 0 || at < len(body); at += chunk {
		s := r.rejoin(0)
		var m *protocol.Reply
		m, body = replyTo(t, next(s, (*protocol.ServerMessage).GetInstruction), numbers, 2)
		s.sendReply(m)
		if f := next(s, (*protocol.ServerMessage).GetFetch); int(f.Offset) != at {
			t.Fatalf("the server asks for chunks from %d on, not %d", f.Offset, at)
		}
		s.sendChunk(m.Content.Sum, uint64(at), body[at:min(at+chunk, len(body))])
		if at+chunk < len(body) {
			s.cut()
		}
	}
	if out := replies(); len(out) != 1 || out[0].Upload.Shared["ctx"].Data[numbers-1] != 2 {
		t.Errorf("%d replies", len(out))
	}
	if got := r.h.Totals(); got.Dropped != 0 || got.Late != 0 {
		t.Errorf("%+v", got)
	}
}

// cut ends a stream after the server has read its messages.
func (s *stream) cut() {
	s.t.Helper()
	if err := s.CloseRequest(); err != nil {
		s.t.Error(err)
	}
	s.end()
}

// rejoin opens another stream of a client once the server knows the end of the last one.
func (r *room) rejoin(client int) *stream {
	r.t.Helper()
	busytest.Until(r.t, "the end of the last stream", func() bool {
		return r.h.Status().Clients[client].Doing == ""
	})
	return r.join(client, true)
}
