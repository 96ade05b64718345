package subjects

import (
	"strconv"
	"strings"

	"promptfed/federation/transport/certs"
)

// Permission is what one user of a run, other than its server, may do on a NATS server. This is the only table of it:
// the permissions of the embedded server and both forms of promptfed nats-config are made from it.
type Permission struct {
	Publish   []string // subjects that the server hears
	Subscribe []string // subjects that the server sends by
}

// PermissionOf is that of a user, or nil where a run has no such user. Workers, who trust each other, are one user; the
// embedded server keeps them apart, see WorkerPermission.
func (n Names) PermissionOf(user string) *Permission {
	switch user {
	case certs.StatusUser:
		return &Permission{[]string{n.StatusRequest()}, []string{n.ToStatus() + ".>"}}
	case certs.WorkerUser:
		return &Permission{[]string{n.FromWorker("*") + ".*.*"}, []string{n.ToWorker("*") + ".>"}}
	}
	text, ok := strings.CutPrefix(user, "client-")
	client, err := strconv.Atoi(text)
	if !ok || err != nil || client < 0 || client > MaxClient || certs.UserOf(client) != user {
		return nil
	}
	at := n.Client(client)
	return &Permission{[]string{at.Verb("*")}, []string{at.To + ".>"}}
}

// WorkerPermission is that of a worker that gave its connection the name of workers.ConnOptions; nil for others.
func (n Names) WorkerPermission(user, name string) *Permission {
	id, ok := strings.CutPrefix(name, certs.WorkerUser+"-")
	if !ok || user != certs.WorkerUser || !ID.MatchString(id) {
		return nil
	}
	return &Permission{[]string{n.FromWorker(id) + ".*.*"}, []string{n.ToWorker(id) + ".>"}}
}
