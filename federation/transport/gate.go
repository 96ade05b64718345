package transport

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// serverUser is the user of the hub's own connection.
const serverUser = "promptfed-server"

// UserOf is the user, and the common name in the certificate, of a client.
func UserOf(client int) string { return "client-" + strconv.Itoa(client) }

// InboxOf is where the answers to a client's requests go; no other client may listen there.
func InboxOf(client int) string { return "_INBOX_" + UserOf(client) }

// StatusUser is the common name of a certificate that may only ask how the run goes.
const StatusUser = "status"

// gate decides who may connect to an embedded NATS server and what they may do there.
type gate struct {
	run          string
	token        string
	certificates bool   // every client has one
	secret       string // of the hub's own connection
	log          *slog.Logger
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Check lets a connection in with the permissions of its user: the one of its certificate, or else the one that it names.
func (g *gate) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if same(o.Username, serverUser) && same(o.Password, g.secret) {
		c.RegisterUser(&server.User{Username: serverUser})
		return true
	}
	user := o.Username
	if g.certificates {
		state := c.GetTLSConnectionState()
		if state == nil || len(state.PeerCertificates) == 0 {
			return g.refuse(c, "no certificate")
		}
		user = state.PeerCertificates[0].Subject.CommonName
	}
	if g.token != "" && !same(o.Password, g.token) {
		return g.refuse(c, "another token")
	}
	if user == StatusUser {
		c.RegisterUser(&server.User{Username: user, Permissions: allow([]string{names{g.run}.status()}, "_INBOX_"+StatusUser)})
		return true
	}
	if user == WorkerUser {
		c.RegisterUser(&server.User{Username: user, Permissions: allow(workerMayPublish(g.run), WorkerInbox)})
		return true
	}
	text, ok := strings.CutPrefix(user, "client-")
	client, err := strconv.Atoi(text)
	if !ok || err != nil || client < 0 || client > maxClient || UserOf(client) != user {
		return g.refuse(c, fmt.Sprintf("%.60q is no client", user))
	}
	c.RegisterUser(&server.User{Username: user, Permissions: allow(mayPublish(g.run, client), InboxOf(client))})
	return true
}

func (g *gate) refuse(c server.ClientAuthentication, why string) bool {
	g.log.Warn("a connection is refused", "from", fmt.Sprint(c.RemoteAddress()), "reason", why)
	return false
}

func allow(publish []string, inbox string) *server.Permissions {
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: []string{inbox + ".>"}}}
}

// mayPublish are the subjects that a client needs: requests to the hub, its replies, its own durable consumer and its own
// bucket of objects. Orders come to its inbox, so that it subscribes to nothing else.
func mayPublish(run string, client int) []string {
	n := names{run}
	return append([]string{
		n.subject(helloSubject, client), n.subject(joinSubject, client), n.subject(beatSubject, client), n.subject(replySubject, client),
		"$JS.API.CONSUMER.INFO." + n.orders() + "." + n.consumer(client),
		"$JS.API.CONSUMER.MSG.NEXT." + n.orders() + "." + n.consumer(client),
		"$JS.ACK." + n.orders() + "." + n.consumer(client) + ".>",
	}, objectSubjects(n.bucket(client))...)
}

// objectSubjects are those by which a bucket of objects is read and written.
func objectSubjects(bucket string) []string {
	objects := "OBJ_" + bucket
	return []string{
		"$JS.API.STREAM.INFO." + objects, "$JS.API.STREAM.MSG.GET." + objects, "$JS.API.DIRECT.GET." + objects, "$JS.API.DIRECT.GET." + objects + ".>",
		"$JS.API.STREAM.PURGE." + objects,
		"$JS.API.CONSUMER.CREATE." + objects + ".>", "$JS.API.CONSUMER.DELETE." + objects + ".>", "$JS.API.CONSUMER.INFO." + objects + ".>",
		"$JS.API.CONSUMER.MSG.NEXT." + objects + ".>",
		"$O." + bucket + ".>",
	}
}
