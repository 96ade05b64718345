package subjects

import (
	"strconv"
	"strings"

	"promptfed/federation/net/certs"
)

// Permission holds the NATS permissions of one user of a run other than its server. The embedded server and both forms
// of promptfed nats-config take them from here.
type Permission struct {
	Publish   []string // subjects that the server subscribes to
	Subscribe []string // subjects that the server publishes
}

// PermissionOf returns the permission of a user, or nil for no user of the run. Workers trust each other and are one
// user; the embedded server separates them, see WorkerPermission.
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

// WorkerPermission returns the permission of a worker whose connection has the name of workers.ConnOptions, or nil.
func (n Names) WorkerPermission(user, name string) *Permission {
	id, ok := strings.CutPrefix(name, certs.WorkerUser+"-")
	if !ok || user != certs.WorkerUser || !ID.MatchString(id) {
		return nil
	}
	return &Permission{[]string{n.FromWorker(id) + ".*.*"}, []string{n.ToWorker(id) + ".>"}}
}
