package natsserver

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/subjects"
)

// account is one user's account of a NATS server, without JetStream. It shares only streams with other accounts:
// messages on these subjects go to the other account under the same name and with the same reply subject.
type account struct {
	user       string
	permission *subjects.Permission // of its user; nil for all
	exports    []stream
	imports    []stream
}

// stream is a stream to or from a user's account.
type stream struct{ user, subject string }

// accounts returns those of a run: the server's, then those of status and workers, then one for each client.
func accounts(run string, clients int) ([]account, error) {
	if err := subjects.CheckName(run); err != nil {
		return nil, err
	}
	if clients < 1 || clients > subjects.MaxClient {
		return nil, fmt.Errorf("%d clients: the number must be 1 to %d", clients, subjects.MaxClient)
	}
	users := []string{certs.StatusUser, certs.WorkerUser}
	for k := range clients {
		users = append(users, certs.UserOf(k))
	}
	own, others := account{user: certs.ServerName}, []account{}
	for _, user := range users {
		a := account{user: user, permission: subjects.Names(run).PermissionOf(user)}
		for _, subject := range a.permission.Publish {
			a.exports = append(a.exports, stream{certs.ServerName, subject})
			own.imports = append(own.imports, stream{user, subject})
		}
		for _, subject := range a.permission.Subscribe {
			a.imports = append(a.imports, stream{certs.ServerName, subject})
			own.exports = append(own.exports, stream{user, subject})
		}
		others = append(others, a)
	}
	return append([]account{own}, others...), nil
}

// limits returns the limits of a user's account: the connections of the embedded server, and their subscriptions.
func limits(user string) (connections, subscriptions int64) {
	if user == certs.WorkerUser {
		return -1, -1
	}
	return maxConnections, 8 * maxConnections
}

// maxPayload returns the largest message of a NATS server for a run, in bytes.
const maxPayload = 2 << 20

// accountName returns the name of a user's account.
func accountName(run, user string) string { return "promptfed-" + run + "-" + user }

// WriteConfig writes the configuration of a nats-server: an account without JetStream for the server of a run, each
// client, the workers of a queue of that name, and the status user. Users are identified by the certificates of a
// folder, which holds the authority's as ca.pem.
func WriteConfig(w io.Writer, run, listen, folder string, clients int) error {
	list, err := accounts(run, clients)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Accounts of promptfed's run %q for nats-server: written by promptfed nats-config.\nlisten: %q\n"+
		"max_payload: %d\n%saccounts {\n", run, listen, maxPayload, tlsBlock(folder, "verify_and_map"))
	for _, a := range list {
		fmt.Fprintf(&b, "  %q {\n", accountName(run, a.user))
		if a.permission == nil {
			fmt.Fprintf(&b, "    users: [{user: %q}]\n", "CN="+a.user)
		} else {
			connections, subscriptions := limits(a.user)
			fmt.Fprintf(&b, "    users: [{user: %q, permissions: {publish: {allow: %s}, subscribe: {allow: %s}}}]\n"+
				"    limits: {max_connections: %d, max_subscriptions: %d, max_leafnodes: 0}\n", "CN="+a.user,
				quoted(a.permission.Publish), quoted(a.permission.Subscribe), connections, subscriptions)
		}
		b.WriteString("    exports: [\n")
		for _, x := range a.exports {
			fmt.Fprintf(&b, "      {stream: %q, accounts: [%q]}\n", x.subject, accountName(run, x.user))
		}
		b.WriteString("    ]\n    imports: [\n")
		for _, x := range a.imports {
			fmt.Fprintf(&b, "      {stream: {account: %q, subject: %q}}\n", accountName(run, x.user), x.subject)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("}\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// tlsBlock returns the TLS settings with the server's certificate of a folder; verify is the mode for client
// certificates.
func tlsBlock(folder, verify string) string {
	return fmt.Sprintf("tls {\n  cert_file: %q\n  key_file: %q\n  ca_file: %q\n  %s: true\n}\n",
		filepath.Join(folder, certs.ServerName+".pem"), filepath.Join(folder, certs.ServerName+"-key.pem"),
		filepath.Join(folder, "ca.pem"), verify)
}

func quoted(list []string) string {
	var out []string
	for _, x := range list {
		out = append(out, fmt.Sprintf("%q", x))
	}
	return "[" + strings.Join(out, ", ") + "]"
}
