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

// names are the subjects, streams and buckets of one run.
type names struct{ run string }

func (n names) subject(what string, client int) string {
	return "pf." + n.run + "." + what + "." + strconv.Itoa(client)
}

func (n names) all(what string) string { return "pf." + n.run + "." + what + ".*" }
func (n names) status() string         { return "pf." + n.run + ".status" }
func (n names) orders() string         { return "pf-" + n.run + "-orders" }
func (n names) replies() string        { return "pf-" + n.run + "-replies" }
func (n names) members() string        { return "pf-" + n.run + "-members" }

func (n names) bucket(client int) string   { return fmt.Sprintf("pf-%s-objects-%d", n.run, client) }
func (n names) consumer(client int) string { return fmt.Sprintf("client-%d", client) }

// last is the client that a subject ends with.
func (names) last(subject string) (int, error) {
	id, err := strconv.Atoi(subject[strings.LastIndexByte(subject, '.')+1:])
	if err != nil || id < 0 || id > maxClient {
		return 0, fmt.Errorf("subject %.100q names no client", subject)
	}
	return id, nil
}

const maxClient = 1 << 20

// What the subjects of a client are for.
const (
	orderSubject = "order" // server to client, through a stream
	replySubject = "reply" // client to server, through a stream
	helloSubject = "hello" // request: which run is this
	joinSubject  = "join"  // request: may I take part
	beatSubject  = "beat"  // the client is there
)
