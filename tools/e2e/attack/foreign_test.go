package attack

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/transport"
	"promptfed/federation/transport/subjects"
	"promptfed/tools/e2e/proctest"
)

// A stock nats-server carries a whole run with the output of promptfed nats-config, both with the users of the
// certificates and with accounts that an operator signed. Its JetStream is on, and no client can use it. Only the
// server hears a client, and a client hears only its own messages, even if a message names the subject of another
// client for its answer.
func TestForeignServer(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"file", "operator"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := openReal(t)
			flags := []string{"nats-config", "--clients", "2", "--tls", s.at("certs"), "--listen", s.address}
			conf := ""
			if form == "operator" {
				call(t, append(flags, "--operator", s.at("operator"))...)
			} else {
				conf = call(t, flags...)
			}
			s.ownNATS(conf, "-js", "-sd", s.at("store"))
			s.serveReal()
			as := func(name string, more ...nats.Option) (*nats.Conn, chan error) {
				if creds := s.at("operator", name+".creds"); form == "operator" {
					more = append(more, nats.UserCredentials(creds))
				}
				return s.intruder(name, more...)
			}
			for _, name := range []string{"client-0", "status"} {
				nc, denied := as(name)
				for _, subject := range append(append([]string{}, jetStream...), others...) {
					denies(t, nc, denied, subject)
				}
				for _, subject := range []string{">", "pf.>", "pf.default.to.1.>", "pf.default.from.0.reply",
					"pf.default.to.*.order", "$JS.>", "$SYS.>", "_INBOX.>"} {
					deaf(t, nc, denied, subject)
				}
				nc.Close()
			}
			if nc, err := nats.Connect("tls://"+s.address, nats.Secure(s.tls(s.at("certs"), "client-2")),
				nats.NoReconnect()); err == nil { // a certificate without an account
				nc.Close()
				t.Error("client 2 is let in")
			}
			s.isolated(as)
			clients := []*process{s.joinReal(0), s.joinReal(1)}
			s.runs()
			var status transport.Status
			text := call(t, append([]string{"status", "tls://" + s.address, "--json"}, s.link("status")...)...)
			if err := json.Unmarshal([]byte(text), &status); err != nil || !status.Clients[1].Joined {
				t.Errorf("%v: %s", err, text)
			}
			if status.Dropped < 2 {
				t.Errorf("%d messages with a place elsewhere for the answer were counted", status.Dropped)
			}
			s.ended()
			for _, c := range clients {
				c.ended()
			}
			s.sameAsRun()
		})
	}
}

// deaf fails unless NATS refuses a subscription.
func deaf(t *testing.T, nc *nats.Conn, denied chan error, subject string) {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	select {
	case err := <-denied:
		if !strings.Contains(err.Error(), "Permissions Violation for Subscription") {
			t.Errorf("%s: %v", subject, err)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("%s may be heard", subject)
	}
}

// isolated asks, as client 0 and with the certificate for the status, for answers at subjects of client 1. The server
// counts these requests, client 1 hears nothing, and answers to the own subjects arrive.
func (s *server) isolated(as func(string, ...nats.Option) (*nats.Conn, chan error)) {
	s.t.Helper()
	victim, _ := as("client-1", nats.CustomInboxPrefix(subjects.InboxOf("default", 1)))
	heard, err := victim.SubscribeSync("pf.default.to.1.>")
	if err == nil {
		err = victim.Flush()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	question := []byte(`{"nonce":"00000000000000000000000000000000"}`)
	for name, subject := range map[string]string{"client-0": "pf.default.from.0.hello", "status": "pf.default.status"} {
		nc, _ := as(name)
		for _, reply := range []string{"pf.default.to.1.order", "pf.default.to.1.x", "$JS.API.STREAM.LIST",
			"_INBOX_client-1.x"} {
			if err := nc.PublishRequest(subject, reply, question); err != nil {
				s.t.Fatal(err)
			}
		}
		if err := nc.Flush(); err != nil {
			s.t.Fatal(err)
		}
	}
	if m, err := heard.NextMsg(500 * time.Millisecond); err == nil {
		s.t.Errorf("client 1 hears %.80q by %s", m.Data, m.Subject)
	}
	if _, err := victim.Request("pf.default.from.1.hello", question, 5*time.Second); err != nil {
		s.t.Errorf("client 1 has no answer of its own: %v", err)
	}
	victim.Close()
}

// Accounts alone separate clients, without the permissions of their users: only the server hears what client 0
// publishes in any name, and only at the subjects of client 0. JetStream exists for no account.
func TestAccounts(t *testing.T) {
	t.Parallel()
	s := &server{t: t, dir: t.TempDir(), address: proctest.FreeAddress(t, "127.0.0.1")}
	call(t, "certs", s.at("certs"), "--clients", "2")
	conf := call(t, "nats-config", "--clients", "2", "--tls", s.at("certs"), "--listen", s.address)
	bare := regexp.MustCompile(`, permissions: \{.*\}\}\]`).ReplaceAllString(conf, "}]")
	if bare == conf {
		t.Fatal("there were no permissions to remove")
	}
	s.ownNATS(bare, "-js", "-sd", s.at("store"))
	subs := map[string]*nats.Subscription{}
	for _, name := range []string{"server", "client-1", "status"} {
		nc, _ := s.intruder(name)
		sub, err := nc.SubscribeSync(">")
		if err == nil {
			err = nc.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		subs[name] = sub
	}
	nc, _ := s.intruder("client-0")
	for _, subject := range append(append([]string{"pf.default.from.0.hello"}, jetStream...), others...) {
		if strings.HasPrefix(subject, "$SYS") { // each account gets information about itself
			continue
		}
		if m, err := nc.Request(subject, nil, 50*time.Millisecond); err == nil &&
			!bytes.Contains(m.Data, []byte("not enabled for account")) {
			t.Errorf("%s is answered: %.80q", subject, m.Data)
		}
	}
	for name, sub := range subs {
		for {
			m, err := sub.NextMsg(50 * time.Millisecond)
			if err != nil {
				break
			}
			if name != "server" || !strings.HasPrefix(m.Subject, "pf.default.from.0.") {
				t.Errorf("%s hears %s", name, m.Subject)
			}
			delete(subs, "server")
		}
	}
	if subs["server"] != nil {
		t.Error("the server hears nothing of client 0")
	}
}
