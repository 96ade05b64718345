package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// queue are the subjects, the streams and the bucket by which the turns of a run's simulated clients are spread over
// machines.
type queue struct{ name string }

func (q queue) subject(what string) string { return "pf." + q.name + ".work." + what }
func (q queue) turns() string              { return "pf-" + q.name + "-turns" }
func (q queue) results() string            { return "pf-" + q.name + "-results" }
func (q queue) bucket() string             { return "pf-" + q.name + "-work" }
func (q queue) consumer(run string) string { return "workers-" + run }

// window is how long JetStream remembers the identity of a message, to drop a second one.
const window = 2 * time.Minute

// ackWait is when a turn is delivered again that nobody said to be at work on.
const ackWait = 6 * time.Second

// What the subjects of a queue are for.
const (
	helloSubject  = "hello"  // request: which run is this
	joinSubject   = "join"   // request: may I take part
	turnSubject   = "turn"   // run to workers, through a work queue
	resultSubject = "result" // workers to run, through a stream
)

// WorkerUser is the user, and the common name in the certificate, of workers.
const WorkerUser = "worker"

// WorkerInbox is where the answers to a worker's requests go.
const WorkerInbox = "_INBOX_" + WorkerUser

// workerMayPublish are the subjects that a worker needs.
func workerMayPublish(run string) []string {
	q := queue{run}
	return append([]string{
		q.subject(helloSubject), q.subject(joinSubject), q.subject(resultSubject),
		"$JS.API.CONSUMER.INFO." + q.turns() + ".*",
		"$JS.API.CONSUMER.MSG.NEXT." + q.turns() + ".*",
		"$JS.ACK." + q.turns() + ".>",
	}, objectSubjects(q.bucket())...)
}

// objectSubjects are those by which a bucket of objects is read and written. Who may use them has the rights of
// JetStream to whatever subject it names for the answer: workers are trusted with the whole account that the queue is
// in.
func objectSubjects(bucket string) []string {
	objects := "OBJ_" + bucket
	return []string{
		"$JS.API.STREAM.INFO." + objects, "$JS.API.STREAM.MSG.GET." + objects, "$JS.API.DIRECT.GET." + objects,
		"$JS.API.DIRECT.GET." + objects + ".>",
		"$JS.API.STREAM.PURGE." + objects,
		"$JS.API.CONSUMER.CREATE." + objects + ".>", "$JS.API.CONSUMER.DELETE." + objects + ".>",
		"$JS.API.CONSUMER.INFO." + objects + ".>",
		"$JS.API.CONSUMER.MSG.NEXT." + objects + ".>",
		"$O." + bucket + ".>",
	}
}

// greeting is what a worker says before it opens anything, offer the answer.
type greeting struct {
	Version int    `json:"version"`
	Program string `json:"program"`
}

type offer struct {
	Run    string `json:"run"` // identity
	Limit  int    `json:"limit"`
	Config []byte `json:"config"`
}

// WorkCard is what a worker says of itself to take part.
type WorkCard struct {
	Instance string         `json:"instance"` // of the process
	Host     string         `json:"host"`
	Jobs     int            `json:"jobs"` // turns at a time
	Footing  engine.Footing `json:"footing"`
}

// Parts of the tensors of a turn and of its result. A turn's header is that of an order, a result's that of a reply.
const (
	orderPart = "order"
	statePart = "state"
	replyPart = "reply"
)

// encodeTurn is an order to one client with what that client remembers.
func encodeTurn(o engine.Order, s engine.State) ([]byte, error) {
	return wire.Encode(tensor.Map{}.Put(orderPart, o.Tensors()).Put(statePart, s.Tensors()))
}

// decodeTurn reads what encodeTurn gave.
func (o order) decodeTurn(body []byte) (engine.Order, engine.State, error) {
	out := o.asked()
	m, err := o.content.tensors(body)
	if err == nil {
		err = onlyParts(m, orderPart, statePart)
	}
	if err != nil {
		return out, engine.State{}, err
	}
	if out, err = out.With(m.Under(orderPart)); err != nil {
		return out, engine.State{}, err
	}
	s, err := engine.StateOf(m.Under(statePart))
	return out, s, err
}

// encodeResult is what a turn gave; next is nil where the client remembers what it did before.
func encodeResult(r engine.Reply, next *engine.State) ([]byte, error) {
	m := tensor.Map{}.Put(replyPart, r.Tensors())
	if next != nil {
		m.Put(statePart, next.Tensors())
	}
	return wire.Encode(m)
}

// decodeResult reads what encodeResult gave in answer to an order, and refuses what no client of it could give.
func (r reply) decodeResult(o engine.Order, body []byte) (engine.Reply, *engine.State, error) {
	out := engine.Reply{Client: r.Client, Stats: engine.Stats{Loss: r.Loss, Steps: r.Steps}}
	out.Upload.Client, out.Upload.N = r.Client, r.N
	if r.Scores != nil {
		out.Scores = *r.Scores
	}
	m, err := r.content.tensors(body)
	if err == nil {
		err = onlyParts(m, replyPart, statePart)
	}
	if err == nil {
		out, err = out.With(m.Under(replyPart))
	}
	if err == nil {
		err = o.Refuse(out, false)
	}
	if err != nil || o.Kind != engine.Train {
		return out, nil, err
	}
	next, err := engine.StateOf(m.Under(statePart))
	return out, &next, err
}

// resultID tells JetStream results apart; turnOf gives what it was made of.
func resultID(id, try string) string { return id + try }

func turnOf(message string) (id, try string) {
	if len(message) != 64 || !hash.MatchString(message[:32]) || !hash.MatchString(message[32:]) {
		return "", ""
	}
	return message[:32], message[32:]
}

func onlyParts(m tensor.Map, a, b string) error {
	if len(m.Under(a))+len(m.Under(b)) != len(m) {
		return fmt.Errorf("a message has tensors outside of %s and %s: %.200q", a, b, m.Names())
	}
	return nil
}

// enclose is a header with its tensors in the message, or in an object where they are larger than the limit.
func (q queue) enclose(ctx context.Context, store jetstream.ObjectStore, limit int, what string, header any, c *content,
	body []byte) ([]byte, error) {
	if len(body) > limit {
		if c.Object == "" {
			name := NewID()
			ctx, cancel := context.WithTimeout(ctx, patience(len(body)))
			defer cancel()
			if _, err := store.PutBytes(ctx, name, body); err != nil {
				return nil, fmt.Errorf("objects of queue %s: %w", q.name, err)
			}
			c.Object = name
		}
		body = nil
	}
	return pack(checksum.signer, what, header, body)
}

// patience is how long bytes may take to come or go: a transfer that a lost connection cut short is not noticed
// otherwise.
func patience(bytes int) time.Duration {
	return 10*time.Second + time.Duration(bytes)*time.Microsecond
}

// load reads an object of a known size, and no more than that. A link, which could lead into another bucket, is none.
func load(ctx context.Context, store jetstream.ObjectStore, c content) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience(c.Size))
	defer cancel()
	info, err := store.GetInfo(ctx, c.Object)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", c.Object, err)
	}
	if info.Opts != nil && info.Opts.Link != nil || info.Size != uint64(c.Size) {
		return nil, fmt.Errorf("object %s is a link, or has %d bytes and not %d", c.Object, info.Size, c.Size)
	}
	from, err := store.Get(ctx, c.Object)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", c.Object, err)
	}
	defer from.Close()
	b, err := io.ReadAll(io.LimitReader(from, int64(c.Size)+1))
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", c.Object, err)
	}
	return b, nil
}

// drop removes an object that nobody needs any more.
func drop(store jetstream.ObjectStore, object string) error {
	if object == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := store.Delete(ctx, object); !errors.Is(err, jetstream.ErrObjectNotFound) {
		return err
	}
	return nil
}
