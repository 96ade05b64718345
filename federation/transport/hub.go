package transport

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
	"promptfed/federation/method"
)

// Settings say how a hub goes about a run.
type Settings struct {
	Name     string        // of the run, in subjects
	ID       string        // of this run, as NewID gives; the same when it goes on
	Resume   bool          // take over the streams and members of this run
	Clients  int           // how many there are
	Deadline time.Duration // of every order; 0 for none
	Quorum   float64       // share of the clients asked that must answer, in (0,1]
	Config   []byte        // that clients are told
	Terms    engine.Terms  // that clients must agree to; without classes those of the first client are taken
	Method   method.Method
	// Limit is the size of the tensors, in bytes, from which on they travel as an object instead of in the message.
	Limit int
	// Largest is the size of the largest object that is taken from a client, in bytes.
	Largest int
	// MaxNorm refuses uploads that moved the shared parameters farther than this, by the Euclidean norm; 0 for no bound.
	MaxNorm float64
	Sealed  bool // uploads are behind a guard, as of secure aggregation; only what opens them can check what is in them
	Log     *slog.Logger
	OnReply func(o engine.Order, client int) // after each reply that counts; may be nil
}

// Defaults of Settings.
const (
	DefaultLimit   = 512 << 10
	DefaultLargest = 64 << 20
)

// Hub is the server's side of a run: an engine.Remote.
type Hub struct {
	set Settings
	names
	js      jetstream.JetStream
	members jetstream.KeyValue
	stops   []func()
	count   counters

	mu       sync.Mutex
	known    []member
	terms    engine.Terms
	accepted map[int]string // order whose upload of a client counts last
	safe     map[int]string // likewise, in the last checkpoint
	trained  map[int]string // by client: the training order it answered in the round that is being run
	now      *collection
	joined   chan struct{} // somebody joined
}

// NewID is the identity of a new run.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Open makes the streams of a run, or takes over those of a run that goes on, and starts to answer clients.
func Open(ctx context.Context, nc *nats.Conn, set Settings) (*Hub, error) {
	if err := CheckName(set.Name); err != nil {
		return nil, err
	}
	if set.Clients < 1 || set.Clients > maxClient || !(set.Quorum > 0 && set.Quorum <= 1) || set.Deadline < 0 {
		return nil, fmt.Errorf("%d clients, quorum %v, deadline %v: there must be 1 or more clients, a quorum above 0 and at most 1, and no negative deadline",
			set.Clients, set.Quorum, set.Deadline)
	}
	if set.Limit <= 0 || set.Limit > int(nc.MaxPayload())-maxFrame {
		set.Limit = min(DefaultLimit, int(nc.MaxPayload())-maxFrame)
	}
	if set.Largest <= 0 {
		set.Largest = DefaultLargest
	}
	if set.Log == nil {
		set.Log = slog.New(slog.DiscardHandler)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	h := &Hub{set: set, names: names{set.Name}, js: js, known: make([]member, set.Clients), terms: set.Terms,
		accepted: map[int]string{}, safe: map[int]string{}, trained: map[int]string{}, joined: make(chan struct{}, 1)}
	if _, err := nc.RequestWithContext(short(ctx), h.status(), nil); err == nil {
		return nil, fmt.Errorf("another server runs %q on this NATS server; stop it, or give --run another name", set.Name)
	}
	if err := h.streams(ctx); err != nil {
		return nil, err
	}
	if err := h.recall(ctx); err != nil {
		return nil, err
	}
	if err := h.listen(nc); err != nil {
		return nil, err
	}
	return h, h.pump(ctx)
}

// short is a context for one quick question. It ends by itself.
func short(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// Close stops answering. What is stored stays, so that the run can go on.
func (h *Hub) Close() {
	for _, stop := range h.stops {
		stop()
	}
	h.stops = nil
}

// Remove deletes the streams of a finished run.
func (h *Hub) Remove(ctx context.Context) error {
	h.Close()
	var errs []error
	for _, s := range []string{h.orders(), h.replies()} {
		errs = append(errs, absent(h.js.DeleteStream(ctx, s)))
	}
	errs = append(errs, absent(h.js.DeleteKeyValue(ctx, h.names.members())))
	for k := range h.set.Clients {
		errs = append(errs, absent(h.js.DeleteObjectStore(ctx, h.bucket(k))))
	}
	return errors.Join(errs...)
}

// absent forgives the deletion of what is not there.
func absent(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	return err
}

// window is how long JetStream remembers the identity of a reply, to drop a second one.
const window = 2 * time.Minute

func (h *Hub) streams(ctx context.Context) error {
	if !h.set.Resume {
		if err := h.Remove(ctx); err != nil {
			return fmt.Errorf("cannot remove an older run %q: %w", h.set.Name, err)
		}
	}
	for _, c := range []jetstream.StreamConfig{
		{Name: h.orders(), Subjects: []string{h.all(orderSubject)}, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld,
			Duplicates: window, Description: "orders of promptfed; the newest of each client"},
		{Name: h.replies(), Subjects: []string{h.all(replySubject)}, Retention: jetstream.WorkQueuePolicy, MaxMsgsPerSubject: 16,
			Discard: jetstream.DiscardOld, Duplicates: window, MaxMsgSize: int32(h.set.Limit + maxFrame), Description: "replies of promptfed's clients"},
	} {
		if _, err := h.js.CreateOrUpdateStream(ctx, c); err != nil {
			return fmt.Errorf("NATS JetStream: stream %s: %w", c.Name, err)
		}
	}
	var err error
	h.members, err = h.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: h.names.members(), Description: "members of a run of promptfed"})
	if err != nil {
		return fmt.Errorf("NATS JetStream: bucket %s: %w", h.names.members(), err)
	}
	return nil
}

// recall reads the members of a run that goes on.
func (h *Hub) recall(ctx context.Context) error {
	if e, err := h.members.Get(ctx, termsKey); err == nil {
		if err := json.Unmarshal(e.Value(), &h.terms); err != nil {
			return fmt.Errorf("bucket %s: %w", h.names.members(), err)
		}
		if len(h.set.Terms.Classes) > 0 { // what the configuration fixes
			if err := h.set.Terms.Differs(h.terms); err != nil {
				return fmt.Errorf("this run went another way before: %w; take another --out", err)
			}
		}
	}
	for k := range h.known {
		e, err := h.members.Get(ctx, h.consumer(k))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("bucket %s: %w", h.names.members(), err)
		}
		if err := json.Unmarshal(e.Value(), &h.known[k].Card); err != nil {
			return fmt.Errorf("bucket %s: %w", h.names.members(), err)
		}
	}
	return nil
}

const termsKey = "terms"
