package transport

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// NATSConfig writes a configuration for a nats-server: one account without JetStream, in which the server, every client
// of a run and the holder of the certificate for the status have the permissions that they need and no others. Users
// are those of the certificates in a folder, which hold the authority's as ca.pem.
func NATSConfig(w io.Writer, run, listen, certs string, clients int) error {
	if err := CheckName(run); err != nil {
		return err
	}
	if clients < 1 || clients > maxClient {
		return fmt.Errorf("%d clients", clients)
	}
	n := names{run}
	var b strings.Builder
	fmt.Fprintf(&b, "# Users of promptfed's run %q for nats-server: written by promptfed nats-config.\nlisten: %q\n"+
		"max_payload: 2MB\n", run, listen)
	fmt.Fprintf(&b, "tls {\n  cert_file: %q\n  key_file: %q\n  ca_file: %q\n  verify_and_map: true\n}\n",
		filepath.Join(certs, ServerName+".pem"),
		filepath.Join(certs, ServerName+"-key.pem"), filepath.Join(certs, "ca.pem"))
	b.WriteString("accounts {\n  PROMPTFED {\n    users: [\n")
	user := func(name string, publish, subscribe []string) {
		fmt.Fprintf(&b, "      {user: %q, permissions: {publish: {allow: %s}, subscribe: {allow: %s}}}\n", "CN="+name,
			quoted(publish), quoted(subscribe))
	}
	all := "pf." + run
	user(ServerName, []string{all + ".to.>", n.status(), oldInbox + "*.>"}, []string{all + ".from.>", n.status(),
		n.toStatus() + ".>", n.oldHello("*")})
	user(StatusUser, []string{n.status()}, []string{n.toStatus() + ".>"})
	for k := range clients {
		p := permissions(run, UserOf(k))
		user(UserOf(k), p.Publish.Allow, p.Subscribe.Allow)
	}
	b.WriteString("    ]\n  }\n}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func quoted(list []string) string {
	var out []string
	for _, x := range list {
		out = append(out, fmt.Sprintf("%q", x))
	}
	return "[" + strings.Join(out, ", ") + "]"
}
