package subjects

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"promptfed/federation/net/certs"
)

var runName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// CheckName reports a name of a run that cannot be part of a subject.
func CheckName(run string) error {
	if !runName.MatchString(run) {
		return fmt.Errorf("run %q: a name has at most 32 of the characters a-z, 0-9, - and _", run)
	}
	return nil
}

// Names returns the subjects of a run, or of its queue.
type Names string

// Address holds the subjects of one member: it publishes under from and subscribes under to, and may use no others.
// Answers to its requests go to its inbox.
type Address struct{ From, To, Inbox string }

func (a Address) Verb(verb string) string { return a.From + "." + verb }
func (a Address) Instructions() string    { return a.To + ".order" }
func (a Address) Rejoin() string          { return a.To + ".again" }

// Client returns the address of a client.
func (n Names) Client(client int) Address {
	k := strconv.Itoa(client)
	to := "pf." + string(n) + ".to." + k
	return Address{"pf." + string(n) + ".from." + k, to, to}
}

// FromAnyClient returns the subject of all clients' messages.
func (n Names) FromAnyClient(verb string) string { return "pf." + string(n) + ".from.*." + verb }

// Slot returns the address of one of a worker's concurrent jobs.
func (n Names) Slot(worker string, slot int) Address {
	inbox := n.ToWorker(worker)
	k := "." + strconv.Itoa(slot)
	return Address{n.FromWorker(worker) + k, inbox + k, inbox}
}

func (n Names) FromWorker(worker string) string { return "pf." + string(n) + ".work.from." + worker }
func (n Names) ToWorker(worker string) string   { return "pf." + string(n) + ".work.to." + worker }

// WorkerOf returns the worker and slot of a subject.
func WorkerOf(subject string) (worker string, slot int, ok bool) {
	words := strings.Split(subject, ".")
	if len(words) != 7 || !ID.MatchString(words[4]) {
		return "", 0, false
	}
	slot, err := strconv.Atoi(words[5])
	return words[4], slot, err == nil && slot >= 0 && slot < MaxJobs && strconv.Itoa(slot) == words[5]
}

// VerbOf returns the last word of a subject.
func VerbOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

func (n Names) StatusRequest() string { return "pf." + string(n) + ".status" }
func (n Names) ToStatus() string      { return "pf." + string(n) + ".to." + certs.StatusUser }

// ClientOf returns the client of a subject.
func ClientOf(subject string) (client int, ok bool) {
	words := strings.Split(subject, ".")
	if len(words) != 5 {
		return 0, false
	}
	client, err := strconv.Atoi(words[3])
	return client, err == nil && client >= 0 && client <= MaxClient
}

// Within reports whether an answer may go to a subject: only under the prefix of the client that asked. NATS does not
// check the reply subject of a message, only the subject of the message itself.
func Within(reply, prefix string) bool {
	rest, ok := strings.CutPrefix(reply, prefix+".")
	return ok && len(rest) <= 100 && replyRest.MatchString(rest)
}

var replyRest = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// InboxOf returns the prefix of all subjects to a client; no other client may subscribe there.
func InboxOf(run string, client int) string { return Names(run).Client(client).Inbox }

// StatusInbox returns the same for the status user.
func StatusInbox(run string) string { return Names(run).ToStatus() }

// UnknownClients is the user of all clients whose number the run does not have.
const UnknownClients = "unknown clients"

// Limits of numbers in subjects.
const (
	MaxClient = 1 << 20
	MaxJobs   = 1024 // concurrent jobs of one worker, and of a run
)

// Last words of the subjects of clients' messages.
const (
	HelloVerb     = "hello" // request: which run is this
	JoinVerb      = "join"  // request: may I take part
	HeartbeatVerb = "beat"  // the client is running, and its current instruction
	PieceVerb     = "part"  // request: a piece of the tensors of the client's instruction
	ReplyVerb     = "reply" // request: the reply to an instruction
	PutVerb       = "put"   // request: a piece of the tensors of that reply
)

// ID matches identities of runs, processes, instructions and attempts.
var ID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// NewID returns a new identity.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
