package attack

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/transport"
	"promptfed/federation/transport/subjects"
)

// jetStream lists what the attacks on protocol version 1 requested from JetStream, and what they would request today.
var jetStream = []string{
	"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.CREATE.x", "$JS.API.STREAM.UPDATE.pf-default-replies",
	"$JS.API.STREAM.DELETE.pf-default-orders",
	"$JS.API.STREAM.PURGE.pf-default-orders", "$JS.API.STREAM.MSG.GET.pf-default-orders",
	"$JS.API.STREAM.INFO.OBJ_pf-default-objects-0",
	"$JS.API.DIRECT.GET.OBJ_pf-default-objects-0", "$JS.API.DIRECT.GET.OBJ_pf-default-objects-0.x",
	"$JS.API.CONSUMER.CREATE.OBJ_pf-default-objects-0.x",
	"$JS.API.CONSUMER.MSG.NEXT.pf-default-orders.client-0", "$JS.ACK.pf-default-orders.client-0.x",
	"$O.pf-default-objects-0.C.x", "$KV.pf-default-members.client-0",
}

// others are subjects of client 1, of the server and of NATS itself.
var others = []string{
	"pf.default.from.1.hello", "pf.default.from.1.join", "pf.default.from.1.beat", "pf.default.from.1.reply",
	"pf.default.from.1.put", "pf.default.from.1.part",
	"pf.default.to.1.order", "pf.default.to.1.again", "pf.default.to.0.order", "pf.default.hello.0",
	"pf.default.hello.1",
	"$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "_INBOX.x",
}

// verbs are the subjects that client 0 may use.
var verbs = []string{"hello", "join", "beat", "part", "reply", "put"}

// denies fails unless NATS refuses to publish to a subject.
func denies(t *testing.T, nc *nats.Conn, denied chan error, subject string) {
	t.Helper()
	if err := nc.Publish(subject, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-denied:
		if !strings.Contains(err.Error(), "Permissions Violation for Publish") || !strings.Contains(err.Error(),
			fmt.Sprintf("%q", subject)) {
			t.Errorf("%s: %v", subject, err)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("%s may be published", subject)
	}
}

// Neither a client nor the holder of the certificate for the status has permissions on JetStream, on subjects of other
// clients or on those of the server.
func TestPublish(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	for _, name := range []string{"client-0", "status"} {
		nc, denied := s.intruder(name)
		list := append(append([]string{}, jetStream...), others...)
		if name == "status" {
			for _, v := range verbs {
				list = append(list, "pf.default.from.0."+v)
			}
		}
		for _, subject := range list {
			denies(t, nc, denied, subject)
		}
	}
	s.joins(0, 0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}

// A client hears no message to others.
func TestListen(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	for _, name := range []string{"client-0", "status"} {
		nc, denied := s.intruder(name)
		for _, subject := range []string{">", "pf.>", "pf.default.>", "pf.default.to.1.>", "pf.default.to.*.order",
			"pf.default.from.1.*", "pf.default.from.0.reply",
			"pf.default.status", "$SYS.>", "$JS.>", "_INBOX.>", "_INBOX_client-1.>"} {
			deaf(t, nc, denied, subject)
		}
	}
	s.joins(0, 0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}

// NATS does not check the subject of an answer, so the server does. It does not answer requests of a client, or with
// the certificate for the status, that name a subject of another client, of the server or of JetStream for the answer.
func TestReplySubject(t *testing.T) {
	s := serve(t, 40)
	s.joins(100*time.Millisecond, 0, 1, 2)
	s.runs()
	victim, _ := s.intruder("client-1")
	heard, err := victim.SubscribeSync("pf.default.to.1.>")
	if err != nil {
		t.Fatal(err)
	}
	status, err := s.status()
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for name, subjects := range map[string][]string{"client-0": verbs, "status": {"status"}} {
		nc, _ := s.intruder(name)
		for _, verb := range subjects {
			subject := "pf.default.from.0." + verb
			if name == "status" {
				subject = "pf.default.status"
			}
			list := append(append([]string{"pf.default.to.1.order", "pf.default.to.1.again", "pf.default.to.1.bounced",
				"pf.default.to.1x.y"}, jetStream...), others...)
			if verb == "hello" || verb == "join" { // more at once would be a flood
				list = list[:8]
			}
			for _, reply := range list {
				if err := nc.PublishRequest(subject, reply,
					[]byte(`{"nonce":"00000000000000000000000000000000"}`)); err != nil {
					t.Fatal(err)
				}
				sent++
				time.Sleep(2 * time.Millisecond)
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond)
	now, err := s.status()
	if err != nil {
		t.Fatal(err)
	}
	if now.Dropped-status.Dropped < int64(sent)/2 {
		t.Errorf("%d of %d such requests were counted", now.Dropped-status.Dropped, sent)
	}
	records := s.ends()
	for {
		m, err := heard.NextMsg(10 * time.Millisecond)
		if err != nil {
			break
		}
		// a status, or anything without a request
		if strings.HasPrefix(string(m.Data), "{") || strings.HasSuffix(m.Subject, "bounced") {
			t.Errorf("%s carried %.80q to client 1", m.Subject, m.Data)
		}
	}
	counted(t, records, 0, 1, 2)
}

// status returns the status of the run.
func (s *server) status() (*transport.Status, error) {
	nc, _ := s.intruder("status", nats.CustomInboxPrefix(subjects.StatusInbox("default")))
	defer nc.Close()
	ctx, cancel := contextFor(5 * time.Second)
	defer cancel()
	return transport.AskStatus(ctx, nc, "default")
}

// The server disconnects a client that sends everything that it may as fast as it can. The run continues at the pace of
// the others, and none of these messages stays on disk.
func TestFlood(t *testing.T) {
	s := serve(t, 8)
	s.joins(200*time.Millisecond, 1, 2)
	s.joins(200*time.Millisecond, 0)
	s.runs()
	stop := time.Now().Add(3 * time.Second)
	junk, small := make([]byte, 60<<10), make([]byte, 100)
	sent := 0
	for time.Now().Before(stop) {
		nc, err := nats.Connect("tls://"+s.address, nats.Secure(s.tls(s.at("certs"), "client-0")), nats.NoReconnect())
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for time.Now().Before(stop) && nc.IsConnected() {
			for _, verb := range verbs {
				nc.Publish("pf.default.from.0."+verb, junk)
				for range 100 {
					nc.Publish("pf.default.from.0."+verb, small)
					sent++
				}
			}
		}
		nc.Close()
	}
	if sent < 1000 {
		t.Errorf("only %d messages were sent", sent)
	}
	s.says("sends more than it may")
	for _, r := range s.ends() {
		if !strings.Contains(fmt.Sprint(r.Clients), "1 2") {
			t.Errorf("round %d counts clients %v", r.Round, r.Clients)
		}
	}
	empty(t, s.at("out", "hub", "pieces"))
}
