package client

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/singleflight"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// valueCache holds values by what they were computed from, whichever client asks: values of graphs that depend on no
// image, such as class features of a prompt, and class scores of test data. It is bounded by size and evicts the least
// recently used value; it changes no number. It is safe for concurrent use, and a value that several ask for at once is
// computed once. Values must not be changed.
type valueCache struct {
	capacity   int  // bytes
	keptRounds int  // how many rounds keep a value that none of them asked for
	fixed      bool // a value that does not fit is not kept, and no other one is evicted

	mu     sync.Mutex
	round  int // the last one that began
	rounds int // so far
	size   int
	at     map[[sha256.Size]byte]*list.Element
	used   list.List // of *entry, the most recently used in front
	doing  singleflight.Group
}

type entry struct {
	key   [sha256.Size]byte
	value any
	bytes int
	last  int // valueCache.rounds when it was asked for
}

// caches are shared by the workers of a run's evaluation sets. Class features must not evict class scores: the features
// of a client's prompt have the size of its scores of hundreds of images, and while the client does not change, its
// tests need the scores alone.
type caches struct {
	values  *valueCache // of tests, such as class features of a prompt
	tested  *valueCache // class scores, by test data and parameters
	images  *valueCache // of imageParts
	initial *valueCache // of plan.initial
}

// testBytes bounds the values of caches.values and of caches.tested: the class features of 100 clients and 101 classes
// of width 512 have 20 MB.
const testBytes = 128 << 20

func newValueCache(capacity, keptRounds int) *valueCache {
	return &valueCache{capacity: capacity, keptRounds: keptRounds, at: map[[sha256.Size]byte]*list.Element{}}
}

// once returns the value of a key, of some bytes in memory, and calls compute for one that is not there. Only an error
// of the caller's own compute is returned: another caller that computes the value may be stopped.
func (c *valueCache) once(key [sha256.Size]byte, compute func() (value any, bytes int, err error)) (any, error) {
	for {
		if v, ok := c.find(key); ok {
			return v, nil
		}

		mine := false
		value, err, _ := c.doing.Do(string(key[:]), func() (any, error) {
			if v, ok := c.find(key); ok { // computed since the first look
				return v, nil
			}
			mine = true
			v, bytes, err := compute()
			if err == nil {
				c.keep(&entry{key: key, value: v, bytes: bytes})
			}
			return v, err
		})

		if err == nil || mine {
			return value, err
		}
	}
}

// cached returns the value of a key from a cache, and calls compute where the cache lacks it.
func cached[T interface{ Bytes() int }](c *valueCache, key [sha256.Size]byte, compute func() (T, error)) (value T,
	err error) {
	got, err := c.once(key, func() (any, int, error) {
		v, err := compute()
		if err != nil {
			return nil, 0, err
		}
		return v, v.Bytes(), nil
	})

	if err != nil {
		return value, err
	}

	return got.(T), nil
}

func (c *valueCache) find(key [sha256.Size]byte) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.at[key]
	if !ok {
		return nil, false
	}

	c.used.MoveToFront(e)
	v := e.Value.(*entry)
	v.last = c.rounds
	return v.value, true
}

// keptTests is how many rounds with tests keep a value that none of them asked for: every test asks for a value that is
// still needed, such as class features of clients that do not train.
const keptTests = 2

// begin evicts, as a round begins, the values that nobody asked for in the keptRounds rounds before it.
func (c *valueCache) begin(round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rounds > 0 && c.round == round {
		return
	}

	c.round = round
	for c.rounds++; c.used.Len() > 0 && c.used.Back().Value.(*entry).last < c.rounds-c.keptRounds; {
		c.dropLast()
	}
}

// beginTests tells the caches of tests that the tests of a round begin.
func (k caches) beginTests(round int) {
	k.values.begin(round)
	k.tested.begin(round)
}

// dropLast evicts the least recently used value.
func (c *valueCache) dropLast() {
	last := c.used.Remove(c.used.Back()).(*entry)
	delete(c.at, last.key)
	c.size -= last.bytes
}

func (c *valueCache) keep(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.last = c.rounds; e.bytes > c.capacity || c.fixed && c.size+e.bytes > c.capacity {
		return
	}

	c.at[e.key] = c.used.PushFront(e)
	for c.size += e.bytes; c.size > c.capacity; {
		c.dropLast()
	}
}

// digest identifies the values of a program by all inputs that are no rows of data, and by further numbers.
func (p *program) digest(in inputs, more ...int64) ([sha256.Size]byte, error) {
	hash := sha256.New()
	write := func(v ...int64) { binary.Write(hash, binary.LittleEndian, v) }
	write(append([]int64{p.number, int64(len(more))}, more...)...)
	if len(p.hosts) > 0 { // they may hold values of the client's ClientSpec
		write(int64(in.local.Task.Client))
	}

	var buf []byte
	for _, source := range p.reads() {
		if spec.IsRow(source) || source.Kind == method.HostInput || source.Kind == FixedInput {
			continue
		}

		value, err := in.need(source)
		if err != nil {
			return [sha256.Size]byte{}, err
		}

		name := source.String()
		write(int64(len(name)), int64(len(value.Shape)), int64(len(value.Data)), int64(len(value.Ints)))
		hash.Write([]byte(name))
		for _, n := range value.Shape {
			write(int64(n))
		}

		buf = slices.Grow(buf[:0], 4*len(value.Data))
		for _, v := range value.Data {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}

		hash.Write(buf)
		write(value.Ints...)
	}

	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// scoresOnce returns the class scores [N,C] of all rows of a data set, computed once for the same parameters, whichever
// client asks.
func (w *Worker) scoresOnce(ctx context.Context, plan *plan, local *method.Local, state message.ClientState,
	rows *spec.Features) (*tensor.Tensor, error) {
	if len(rows.Views) > 1 { // they are drawn anew each time
		return w.scores(ctx, plan, local, state, rows)
	}

	key, _, err := plan.testKeys(inputsOf(local, state), rows)
	if err != nil {
		return nil, err
	}

	return cached(w.compiler.tested, key, func() (*tensor.Tensor, error) {
		return w.scores(ctx, plan, local, state, rows)
	})
}

// testKeys identify the class scores of a data set, and the values of the prefix if there is one.
func (p *plan) testKeys(in inputs, rows *spec.Features) (scores, prefix [sha256.Size]byte, err error) {
	scores, err = p.digest(in, int64(rows.Identity()))
	if err == nil && p.prefix != nil {
		prefix, err = p.prefix.digest(in)
		scores = sha256.Sum256(append(scores[:], prefix[:]...))
	}
	return scores, prefix, err
}
