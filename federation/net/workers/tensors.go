package workers

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/net/wait"
)

// DefaultLimit is the default size of encoded tensors inside a message, in bytes.
const DefaultLimit = 256 << 10

// maxHeader is the largest size of a message beside its tensors, in bytes.
const maxHeader = 64 << 10

// tensorStore holds the tensors that are too large for a message in the object store of a queue.
type tensorStore struct {
	conn  *nats.Conn
	js    jetstream.JetStream
	queue queue
	limit int // largest size of tensors inside a message, in bytes
}

func newTensorStore(nc *nats.Conn, q queue, limit int) (tensorStore, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(objectTimeout))
	if limit <= 0 {
		limit = DefaultLimit
	}
	return tensorStore{nc, js, q, min(limit, (int(nc.MaxPayload())-maxHeader)/2)}, err
}

// objectTimeout is the longest time without progress of an object's transfer.
const objectTimeout = 30 * time.Second

// put returns the description of tensors and the part of a message's data. Large tensors become an object; shared ones
// with their digest.
func (s tensorStore) put(ctx context.Context, body []byte, shared bool) (content, []byte, error) {
	if len(body) <= s.limit {
		return content{Size: len(body)}, body, nil
	}

	c := content{Size: len(body), Object: rand.Text()}
	if shared {
		c.Digest = fmt.Sprintf("%x", sha256.Sum256(body))
	}

	return c, nil, wait.Retry(ctx, retryInterval, func() (bool, error) {
		err := s.write(ctx, c.Object, body)
		if err == nil || ctx.Err() == nil && unavailable(err) {
			return err != nil, nil
		}
		return false, fmt.Errorf("the NATS server does not store %d bytes of tensors: %w", len(body), err)
	})
}

// get returns encoded tensors, from the beginning of a message's data or from the object store, and the rest of the
// data.
func (s tensorStore) get(ctx context.Context, c content, data []byte) (tensors, rest []byte, err error) {
	if c.Object == "" {
		if c.Size < 0 || c.Size > len(data) {
			return nil, nil, fmt.Errorf("a message has %d bytes of tensors; its header states %d", len(data), c.Size)
		}
		return data[:c.Size], data[c.Size:], nil
	}

	err = wait.Retry(ctx, retryInterval, func() (bool, error) {
		tensors, err = s.read(ctx, c)
		return err != nil && ctx.Err() == nil && !errors.Is(err, jetstream.ErrObjectNotFound) && !s.conn.IsClosed(), err
	})

	return tensors, data, err
}

// connected returns a context that ends when the connection is lost.
func (s tensorStore) connected(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	lost := s.conn.StatusChanged(nats.RECONNECTING)
	go func() {
		defer s.conn.RemoveStatusListener(lost)
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (s tensorStore) write(ctx context.Context, name string, b []byte) error {
	ctx, cancel := s.connected(ctx)
	defer cancel()
	store, err := s.js.ObjectStore(ctx, s.queue.objects())
	if err == nil {
		_, err = store.PutBytes(ctx, name, b)
	}
	return err
}

// read reads an object, until nothing comes for objectTimeout.
func (s tensorStore) read(ctx context.Context, c content) ([]byte, error) {
	ctx, cancel := s.connected(ctx)
	defer cancel()
	ctx = pollingContext{ctx}
	store, err := s.js.ObjectStore(ctx, s.queue.objects())
	if err != nil {
		return nil, err
	}

	object, err := store.Get(ctx, c.Object)
	if err != nil {
		return nil, err
	}
	defer object.Close()

	w := &watchedBuffer{stop: time.AfterFunc(objectTimeout, cancel)}
	defer w.stop.Stop()
	if _, err := io.Copy(w, object); err != nil {
		return nil, err
	}

	return w.b.Bytes(), nil
}

// pollingContext makes reads of an object check every second whether the context has ended. An object's reader waits
// until the context's deadline, and then checks it.
type pollingContext struct{ context.Context }

// Deadline returns the end of one wait.
func (pollingContext) Deadline() (time.Time, bool) { return time.Now().Add(time.Second), true }

// watchedBuffer is a buffer with a timer that each write starts again.
type watchedBuffer struct {
	b    bytes.Buffer
	stop *time.Timer
}

func (w *watchedBuffer) Write(p []byte) (int, error) {
	w.stop.Reset(objectTimeout)
	return w.b.Write(p)
}

// remove removes an object with all that the store keeps of it.
func (s tensorStore) remove(ctx context.Context, content content) error {
	store, err := s.js.ObjectStore(ctx, s.queue.objects())
	if err == nil {
		err = store.Delete(ctx, content.Object)
	}

	if err != nil {
		return err
	}

	stream, err := s.js.Stream(ctx, s.queue.objectStream())
	if err != nil {
		return err
	}

	// Delete leaves a note that there was an object.
	note := "$O." + s.queue.objects() + ".M." + base64.URLEncoding.EncodeToString([]byte(content.Object))
	return stream.Purge(ctx, jetstream.WithPurgeSubject(note))
}
