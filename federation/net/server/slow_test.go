package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/tensor"
)

// Tensors of an instruction and of its reply arrive over a slow link that is cut once during the instruction and twice
// during the upload. After a cut they are sent again whole: what passed before the cut is all that is sent twice. No
// file is left in the folders of the client and the server.
func TestCutLinks(t *testing.T) {
	t.Parallel() // it waits for a slow link
	for name, c := range map[string]struct {
		size int     // bytes
		rate float64 // bytes a second in each direction
	}{"1 MB": {1e6, 20e6}, "20 MB": {20e6, 32e6}, "60 MB": {60e6, 96e6}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, 1)
			ctx, cancel := context.WithCancel(busytest.Context(t))
			defer cancel()
			// 0.6 of the instruction, the instruction, 0.6 and 0.6 of the upload, the upload
			at := func(share float64) int64 { return int64(share * float64(c.size)) }
			slow := &nettest.SlowLink{To: strings.TrimPrefix(r.h.URL(), "https://"), Rate: c.rate,
				At: []int64{at(0.6), at(2.2), at(2.8)}}
			link := &netclient.Link{URL: "https://" + slow.Start(t), Name: "client-0",
				Identity: r.ca.Identity("client-0"), Log: r.logs.Logger()}
			defer link.Close()
			ended := make(chan error, 1)
			go func() {
				inv, err := netclient.FetchInvitation(ctx, link, wire.DefaultLargest)
				if err != nil {
					ended <- err
					return
				}
				a, err := netclient.NewClient(inv, r.request(), filepath.Join(r.dir, "client"), echo(0),
					r.logs.Logger())
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
			t.Logf("%d cuts, %.2f times the bytes", cuts, float64(sum)/float64(2*c.size))
			// 0.3 % of frames of TLS, HTTP/2 and gRPC, and a handshake and a piece of the link for each connection
			if most := at(3.8) + at(3.8)/200 + (cuts+1)*64<<10; cuts != 3 || sum > most {
				t.Errorf("%d cuts; %d bytes passed, of at most %d", cuts, sum, most)
			}
			busytest.Until(t, "the end of the upload's file", func() bool {
				left, _ := filepath.Glob(filepath.Join(r.dir, "hub", "pieces", "*"))
				return len(left) == 0
			})
			if info, err := os.Stat(filepath.Join(r.dir, "client")); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			cancel()
			<-ended
		})
	}
}

// A new process of a client that died before its reply gets the instruction whole, and an upload that ends early counts
// for nothing: the next one of the same client is whole, and counts.
func TestUploadsThatEndEarly(t *testing.T) {
	const numbers = 100000 // 7 parts
	r := newRoom(t, 1, func(s *server.Settings) { s.Limit = 1 << 10 })
	p := r.join(0)
	replies := r.start(0, numbers)
	for parts := range 7 {
		o, body := p.next()
		if len(body) != int(o.Content.Size) {
			t.Fatalf("%d bytes of %d", len(body), o.Content.Size)
		}
		m, up := replyTo(t, o, numbers, 2)
		if err := p.answer(m, pieces(up)[:parts]...); err == nil {
			t.Errorf("%d of 7 parts are received", parts)
		}
		p.lose()
		p = r.join(0)
	}
	o, _ := p.next()
	m, up := replyTo(t, o, numbers, 2)
	if err := p.answer(m, pieces(up)...); err != nil {
		t.Error(err)
	}
	if out := replies(); len(out) != 1 || out[0].Upload.Shared["ctx"].Data[numbers-1] != 2 {
		t.Errorf("%d replies", len(out))
	}
	if got := r.h.Totals(); got.Dropped != 0 || got.Late != 0 || got.Refused != 0 {
		t.Errorf("%+v", got)
	}
}
