package transport

import (
	"strconv"
	"strings"
)

// right is what one user of a run, other than its server, may do on a NATS server. This is the only table of it: the
// permissions of the embedded server and both forms of promptfed nats-config are made from it.
type right struct {
	publish   []string // subjects that the server hears
	subscribe []string // subjects that the server sends by
}

// right is that of a user, or nil where a run has no such user. Workers, who trust each other, are one user; the
// embedded server keeps them apart, see workerRight.
func (n names) right(user string) *right {
	switch user {
	case StatusUser:
		return &right{[]string{n.status()}, []string{n.toStatus() + ".>"}}
	case WorkerUser:
		return &right{[]string{n.fromWorker("*") + ".*.*"}, []string{n.toWorker("*") + ".>"}}
	}
	text, ok := strings.CutPrefix(user, "client-")
	client, err := strconv.Atoi(text)
	if !ok || err != nil || client < 0 || client > maxClient || UserOf(client) != user {
		return nil
	}
	// Of version 1 there is only the question who is there, which is answered with the version.
	at := n.client(client)
	return &right{[]string{at.verb("*"), n.oldHello(text)}, []string{at.to + ".>", oldInbox + text + ".>"}}
}

// workerRight is that of a worker that gave its connection the name of WorkerOptions; nil for others.
func (n names) workerRight(user, name string) *right {
	id, ok := strings.CutPrefix(name, WorkerUser+"-")
	if !ok || user != WorkerUser || !hash.MatchString(id) {
		return nil
	}
	return &right{[]string{n.fromWorker(id) + ".*.*"}, []string{n.toWorker(id) + ".>"}}
}
