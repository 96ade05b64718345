// Package subjects names the NATS subjects of a run, and says which user may publish and hear what.
package subjects

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"promptfed/federation/transport/certs"
)

var runName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// CheckName refuses a run's name that cannot be part of subjects.
func CheckName(run string) error {
	if !runName.MatchString(run) {
		return fmt.Errorf("run %q: a name has at most 32 of the characters a-z, 0-9, - and _", run)
	}
	return nil
}

// Names are the subjects of one run, or of the queue that a run has.
type Names string

// Address are what those of one member of a run begin with: it publishes under from, hears what is under to, and may
// use no others. The answers to its requests go to where its inbox is.
type Address struct{ From, To, Inbox string }

func (a Address) Verb(verb string) string { return a.From + "." + verb }
func (a Address) Orders() string          { return a.To + ".order" }
func (a Address) Rejoin() string          { return a.To + ".again" }

// Client are the subjects of a client.
func (n Names) Client(client int) Address {
	k := strconv.Itoa(client)
	to := "pf." + string(n) + ".to." + k
	return Address{"pf." + string(n) + ".from." + k, to, to}
}

// FromAny is the subject by which any client speaks.
func (n Names) FromAny(verb string) string { return "pf." + string(n) + ".from.*." + verb }

// Slot are the subjects of one of the jobs that a worker does at a time.
func (n Names) Slot(worker string, slot int) Address {
	inbox := n.ToWorker(worker)
	k := "." + strconv.Itoa(slot)
	return Address{n.FromWorker(worker) + k, inbox + k, inbox}
}

func (n Names) FromWorker(worker string) string { return "pf." + string(n) + ".work.from." + worker }
func (n Names) ToWorker(worker string) string   { return "pf." + string(n) + ".work.to." + worker }

// WorkerOf is the worker whose subject a message came by, and which of its slots.
func WorkerOf(subject string) (worker string, slot int, ok bool) {
	words := strings.Split(subject, ".")
	if len(words) != 7 || !ID.MatchString(words[4]) {
		return "", 0, false
	}
	slot, err := strconv.Atoi(words[5])
	return words[4], slot, err == nil && slot >= 0 && slot < MaxJobs && strconv.Itoa(slot) == words[5]
}

// VerbOf is the last word of a subject.
func VerbOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

func (n Names) StatusRequest() string { return "pf." + string(n) + ".status" }
func (n Names) ToStatus() string      { return "pf." + string(n) + ".to." + certs.StatusUser }

// ClientOf is the client whose subject a message came by.
func ClientOf(subject string) (client int, ok bool) {
	words := strings.Split(subject, ".")
	if len(words) != 5 {
		return 0, false
	}
	client, err := strconv.Atoi(words[3])
	return client, err == nil && client >= 0 && client <= MaxClient
}

// Within tells whether an answer may go to a subject: only under the prefix of the client that asked. What a client
// names as the place for an answer is checked by nobody else, since NATS looks at the subject that it publishes to, not
// at the reply's.
func Within(reply, prefix string) bool {
	rest, ok := strings.CutPrefix(reply, prefix+".")
	return ok && len(rest) <= 100 && replyRest.MatchString(rest)
}

var replyRest = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// InboxOf is what all subjects begin with that a client hears; no other client may listen there.
func InboxOf(run string, client int) string { return Names(run).Client(client).Inbox }

// StatusInbox is likewise for whoever only asks how a run goes.
func StatusInbox(run string) string { return Names(run).ToStatus() }

// UnknownClients is the user that all clients count as whose number the run does not have.
const UnknownClients = "unknown clients"

// Bounds of the numbers in subjects.
const (
	MaxClient = 1 << 20
	MaxJobs   = 1024 // that one worker does at a time, and that a run gives at a time
)

// Last words of the subjects by which clients speak.
const (
	HelloVerb     = "hello" // request: which run is this
	JoinVerb      = "join"  // request: may I take part
	HeartbeatVerb = "beat"  // the client is there, and which order it has
	PieceVerb     = "part"  // request: a piece of the tensors of the own order
	ReplyVerb     = "reply" // request: the reply to an order
	PutVerb       = "put"   // request: a piece of the tensors of that reply
)

// ID is what identities look like: of runs, processes, orders and attempts.
var ID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// NewID is the identity of a new run.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
