package chaos

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// rogue repeats messages of clients, and sends messages that nobody should send. On a separate NATS server it has every
// permission, as the server has; on an embedded one it uses the name of the client whose replies it sends.
type rogue struct {
	mu  sync.Mutex
	old []nats.Msg
}

// hear keeps a reply.
func (g *rogue) hear(subject, body string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.old = append(g.old, nats.Msg{Subject: subject, Data: []byte(body)})
	if len(g.old) > 200 {
		g.old = g.old[1:]
	}
}

// strike sends some of the kept replies, whole and damaged, and returns the number of messages.
func (g *rogue) strike(t testing.TB, r *rand.Rand, address string, clients int) int {
	g.mu.Lock()
	old := g.old
	g.mu.Unlock()
	sent := 0
	for range 3 {
		list := []nats.Msg{{Subject: "pf.default.from." + strconv.Itoa(r.IntN(clients)) + ".reply",
			Data: []byte("PFL\x02\xff\xff\xff\xff{}")}}
		if len(old) > 0 {
			m := old[r.IntN(len(old))]
			last := old[len(old)-1-r.IntN(min(4, len(old)))] // the server may wait for it
			for _, m := range []nats.Msg{m, last} {
				bent := append([]byte(nil), m.Data...)
				if len(bent) > 0 {
					bent[r.IntN(len(bent))] ^= 1 << r.IntN(8)
				}
				list = append(list, m, nats.Msg{Subject: m.Subject, Data: bent}, nats.Msg{Subject: m.Subject,
					Data: bent[:r.IntN(len(bent)+1)]})
			}
		}
		for _, m := range list {
			sent += g.send(t, address, m)
		}
	}
	return sent
}

func (g *rogue) send(t testing.TB, address string, m nats.Msg) int {
	user := "client-" + strings.Split(m.Subject, ".")[3]
	nc, err := nats.Connect("nats://"+address, nats.UserInfo(user, ""), nats.NoReconnect())
	if err != nil { // the server is away
		return 0
	}
	defer nc.Close()
	if err := nc.PublishMsg(&m); err != nil {
		t.Log("the rogue:", err)
	}
	if nc.Flush() != nil {
		return 0
	}
	return 1
}
