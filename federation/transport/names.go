package transport

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var runName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// CheckName refuses a run's name that could not stand in subjects.
func CheckName(run string) error {
	if !runName.MatchString(run) {
		return fmt.Errorf("run %q: take up to 32 of a-z, 0-9, - and _", run)
	}
	return nil
}

// names are the subjects of one run, or of the queue that a run has.
type names string

// subjects are what those of one member of a run begin with: it publishes under from, hears what is under to, and may
// use no others. The answers to its requests go to where its inbox is.
type subjects struct{ from, to, inbox string }

func (a subjects) verb(verb string) string { return a.from + "." + verb }
func (a subjects) orders() string          { return a.to + ".order" }
func (a subjects) again() string           { return a.to + ".again" }

// client are the subjects of a client.
func (n names) client(client int) subjects {
	k := strconv.Itoa(client)
	to := "pf." + string(n) + ".to." + k
	return subjects{"pf." + string(n) + ".from." + k, to, to}
}

// slot are the subjects of one of the jobs that a worker does at a time.
func (n names) slot(worker string, slot int) subjects {
	inbox := n.toWorker(worker)
	k := "." + strconv.Itoa(slot)
	return subjects{n.fromWorker(worker) + k, inbox + k, inbox}
}

func (n names) fromWorker(worker string) string { return "pf." + string(n) + ".work.from." + worker }
func (n names) toWorker(worker string) string   { return "pf." + string(n) + ".work.to." + worker }

// workerOf is the worker whose subject a message came by, and which of its slots.
func workerOf(subject string) (worker string, slot int, ok bool) {
	words := strings.Split(subject, ".")
	if len(words) != 7 || !hash.MatchString(words[4]) {
		return "", 0, false
	}
	slot, err := strconv.Atoi(words[5])
	return words[4], slot, err == nil && slot >= 0 && slot < MaxJobs && strconv.Itoa(slot) == words[5]
}

// verbOf is the last word of a subject.
func verbOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

func (n names) status() string             { return "pf." + string(n) + ".status" }
func (n names) toStatus() string           { return "pf." + string(n) + ".to." + StatusUser }
func (n names) oldHello(any string) string { return "pf." + string(n) + ".hello." + any } // of version 1

// clientOf is the client whose subject a message came by.
func clientOf(subject string) (client int, ok bool) {
	words := strings.Split(subject, ".")
	if len(words) != 5 {
		return 0, false
	}
	client, err := strconv.Atoi(words[3])
	return client, err == nil && client >= 0 && client <= maxClient
}

// within tells whether an answer may go to a subject: only under the prefix of the client that asked. What a client
// names as the place for an answer is checked by nobody else, since NATS looks at the subject that it publishes to, not
// at the reply's.
func within(reply, prefix string) bool {
	rest, ok := strings.CutPrefix(reply, prefix+".")
	return ok && len(rest) <= 100 && replyRest.MatchString(rest)
}

var replyRest = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// oldInbox is what the inboxes of clients of version 1 begin with.
const oldInbox = "_INBOX_client-"

// InboxOf is what all subjects begin with that a client hears; no other client may listen there.
func InboxOf(run string, client int) string { return names(run).client(client).inbox }

// StatusInbox is likewise for whoever only asks how a run goes.
func StatusInbox(run string) string { return names(run).toStatus() }

// Bounds of the numbers in subjects.
const (
	maxClient = 1 << 20
	MaxJobs   = 1024 // that one worker does at a time, and that a run gives at a time
)

// Last words of the subjects by which clients speak.
const (
	helloVerb = "hello" // request: which run is this
	joinVerb  = "join"  // request: may I take part
	beatVerb  = "beat"  // the client is there, and which order it has
	partVerb  = "part"  // request: a piece of the tensors of the own order
	replyVerb = "reply" // request: the reply to an order
	putVerb   = "put"   // request: a piece of the tensors of that reply
)
