package client

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// computed remembers what was computed of the same inputs, whoever asks: values of graphs that depend on no image, such
// as class features of a prompt, and class scores of test data. It is bounded by size, and the values that were
// not asked for longest go first; it changes no number. It is safe for concurrent use, and a value that several ask for
// at once is computed once. Values must not be changed.
type computed struct {
	most int // bytes
	kept int // rounds that a value is remembered that none of them asked for

	mu     sync.Mutex
	round  int // the last one that began
	rounds int // so far
	size   int
	at     map[[sha256.Size]byte]*list.Element
	used   list.List // of *entry, the last asked for in front
	doing  singleflight.Group
}

type entry struct {
	key   [sha256.Size]byte
	value any
	bytes int
	last  int // of computed.rounds, when it was asked for
}

// mostComputed bounds what a Worker remembers: the class features of 100 clients and 101 classes of width 512 have 20
// MB.
const mostComputed = 128 << 20

func newComputed(most, kept int) *computed {
	return &computed{most: most, kept: kept, at: map[[sha256.Size]byte]*list.Element{}}
}

// once gives the value of a key, of some bytes in memory, computed by of where it is not remembered. Only an error of
// the caller's own of is returned: another caller that computes the value may be stopped.
func (c *computed) once(key [sha256.Size]byte, of func() (value any, bytes int, err error)) (any, error) {
	for {
		if v, ok := c.find(key); ok {
			return v, nil
		}
		mine := false
		v, err, _ := c.doing.Do(string(key[:]), func() (any, error) {
			if v, ok := c.find(key); ok { // since the look before
				return v, nil
			}
			mine = true
			v, bytes, err := of()
			if err == nil {
				c.keep(&entry{key: key, value: v, bytes: bytes})
			}
			return v, err
		})
		if err == nil || mine {
			return v, err
		}
	}
}

func (c *computed) find(key [sha256.Size]byte) (any, bool) {
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

// keptTests is how many rounds with tests a value is remembered that none of them asked for: what is still needed, such
// as class features of clients that do not train, every one asks for.
const keptTests = 2

// begin forgets, as a round begins, what nobody asked for in computed.kept rounds before it.
func (c *computed) begin(round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rounds > 0 && c.round == round {
		return
	}
	c.round = round
	for c.rounds++; c.used.Len() > 0 && c.used.Back().Value.(*entry).last < c.rounds-c.kept; {
		c.dropLast()
	}
}

// dropLast evicts the least recently used value.
func (c *computed) dropLast() {
	last := c.used.Remove(c.used.Back()).(*entry)
	delete(c.at, last.key)
	c.size -= last.bytes
}

func (c *computed) keep(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.last = c.rounds
	c.at[e.key] = c.used.PushFront(e)
	for c.size += e.bytes; c.size > c.most; {
		c.dropLast()
	}
}

// digest identifies what a program computes of what it reads beside rows of data, with further numbers.
func (p *program) digest(in inputs, more ...int64) ([sha256.Size]byte, error) {
	h := sha256.New()
	write := func(v ...int64) { binary.Write(h, binary.LittleEndian, v) }
	write(append([]int64{p.number, int64(len(more))}, more...)...)
	if len(p.hosts) > 0 { // they may hold what the client's Task says
		write(int64(in.l.Task.Client))
	}
	var buf []byte
	add := func(name string) error {
		if spec.OfImage(name) {
			return nil // of the rows
		}
		t, err := in.need(name)
		if err != nil {
			return err
		}
		write(int64(len(name)), int64(len(t.Shape)), int64(len(t.Data)), int64(len(t.Ints)))
		h.Write([]byte(name))
		for _, n := range t.Shape {
			write(int64(n))
		}
		buf = buf[:0]
		for _, v := range t.Data {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		h.Write(buf)
		write(t.Ints...)
		return nil
	}
	var out [sha256.Size]byte
	for _, name := range p.inputs {
		if strings.HasPrefix(name, method.HostInput+"/") || strings.HasPrefix(name, fixedInput) {
			continue
		}
		if err := add(name); err != nil {
			return out, err
		}
	}
	for _, call := range p.hosts {
		for _, name := range call.Of {
			if err := add(name); err != nil {
				return out, err
			}
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// fixedValues are the values of the parts of a value that depend on no row of data.
func (w *Worker) fixedValues(ctx context.Context, known *computed, p *program, in inputs) (ort.Values, error) {
	if p == nil {
		return nil, nil
	}
	key, err := p.digest(in)
	if err != nil {
		return nil, err
	}
	v, err := known.once(key, func() (any, int, error) {
		feed, err := in.feed(p, callbackValues{}, 0)
		if err != nil {
			return nil, 0, err
		}
		session, err := p.session()
		if err != nil {
			return nil, 0, err
		}
		out, err := session.RunKeep(ctx, feed.now, feed.held)
		return out, out.Bytes(), err
	})
	if err != nil {
		return nil, err
	}
	return v.(ort.Values), nil
}

// scoresOnce are the class scores [N,C] of all rows of a data set: computed once for the same parameters, whichever
// client asks.
func (w *Worker) scoresOnce(ctx context.Context, p *program, l *method.Local, s message.ClientState,
	data method.Data) (*tensor.Tensor, error) {
	rows, ok := data.(*spec.Features)
	if !ok || len(rows.Views) > 1 { // views are drawn anew each time
		return w.scores(ctx, p, l, s, data)
	}
	in := inputs{l: l, s: s, now: parameters(l)}
	key, err := p.digest(in, int64(rows.Identity()))
	if err == nil && p.fixed != nil {
		var fixed [sha256.Size]byte
		fixed, err = p.fixed.digest(in)
		key = sha256.Sum256(append(key[:], fixed[:]...))
	}
	if err != nil {
		return nil, err
	}
	v, err := w.computed.once(key, func() (any, int, error) {
		out, err := w.scores(ctx, p, l, s, data)
		if err != nil {
			return nil, 0, err
		}
		return out, out.Bytes(), nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*tensor.Tensor), nil
}
