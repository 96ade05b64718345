package workers

import (
	"fmt"
	"regexp"
	"time"
)

// queue is the name of a work queue. One run at a time owns a queue.
type queue string

var queueName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// CheckQueue reports a name of a queue that cannot be part of a subject.
func CheckQueue(name string) error {
	if !queueName.MatchString(name) {
		return fmt.Errorf("queue %q: a name has at most 32 of the characters a-z, 0-9, - and _", name)
	}
	return nil
}

// Names in NATS. Jobs are in a stream, large tensors in an object store; all else are plain messages.
func (q queue) stream() string          { return "promptfed-" + string(q) }
func (q queue) objects() string         { return "promptfed-" + string(q) }
func (q queue) objectStream() string    { return "OBJ_" + q.objects() }
func (q queue) subject(s string) string { return "promptfed." + string(q) + "." + s }

// Subjects of a queue.
const (
	jobSubject    = "job"    // jobs, stored in the stream
	inviteSubject = "invite" // requests for the run's configuration
	joinSubject   = "join"   // requests to join, which are repeated as heartbeats
	resultSubject = "result" // results, which the run acknowledges
	endSubject    = "end"    // the end of a run
)

const (
	heartbeatInterval = 2 * time.Second
	// presenceTimeout is the time after which a silent worker is lost, and after which its jobs are delivered again.
	presenceTimeout = 3 * heartbeatInterval
	requestTimeout  = 2 * time.Second
	retryInterval   = 200 * time.Millisecond
)

// MaxJobs is the largest number of concurrent jobs of one worker, and of all jobs that a run starts concurrently.
const MaxJobs = 1024
