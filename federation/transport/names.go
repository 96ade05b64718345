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

// names are the subjects of one run. A client publishes under from and hears what is under to, and nothing else.
type names struct{ run string }

func (n names) from(client int, verb string) string {
	return "pf." + n.run + ".from." + strconv.Itoa(client) + "." + verb
}

func (n names) to(client int) string       { return "pf." + n.run + ".to." + strconv.Itoa(client) }
func (n names) orders(client int) string   { return n.to(client) + ".order" }
func (n names) again(client int) string    { return n.to(client) + ".again" }
func (n names) status() string             { return "pf." + n.run + ".status" }
func (n names) toStatus() string           { return "pf." + n.run + ".to." + StatusUser }
func (n names) oldHello(any string) string { return "pf." + n.run + ".hello." + any } // of version 1

// sender is the client whose subject a message came by, and the last word of it.
func (names) sender(subject string) (client int, verb string, err error) {
	words := strings.Split(subject, ".")
	if len(words) == 5 && words[2] == "from" {
		if client, err = strconv.Atoi(words[3]); err == nil && client >= 0 && client <= maxClient {
			return client, words[4], nil
		}
	}
	return 0, "", fmt.Errorf("subject %.100q names no client", subject)
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
func InboxOf(run string, client int) string { return names{run}.to(client) }

// StatusInbox is likewise for whoever only asks how a run goes.
func StatusInbox(run string) string { return names{run}.toStatus() }

const maxClient = 1 << 20

// Last words of the subjects by which clients speak.
const (
	helloVerb = "hello" // request: which run is this
	joinVerb  = "join"  // request: may I take part
	beatVerb  = "beat"  // the client is there, and which order it has
	partVerb  = "part"  // request: a piece of the tensors of the own order
	replyVerb = "reply" // request: the reply to an order
	putVerb   = "put"   // request: a piece of the tensors of that reply
)
