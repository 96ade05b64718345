package secure

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"promptfed/federation/engine"
	"promptfed/federation/method"
	"promptfed/federation/secagg"
	"promptfed/runtime/tensor"
)

// guard is the side of the clients of one process: each has a session of its own. A client that forgot its session, as
// after a crash, cannot go on with it and counts as dropped out.
type guard struct {
	l        *Layer
	mu       sync.Mutex
	sessions map[int]*session
}

// session is a client's part of one round. What it sent once it sends again as it was, so that an order that comes
// twice cannot get a second vector under the same masks.
type session struct {
	mu     sync.Mutex
	round  int
	terms  secagg.Terms
	client *secagg.Client
	keys   tensor.Map
	roster []byte
	shares tensor.Map
	inbox  []byte
	masked tensor.Map
}

func newGuard(l *Layer) *guard { return &guard{l: l, sessions: map[int]*session{}} }

func (g *guard) of(client int) (*session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sessions[client]; s != nil {
		return s, nil
	}
	return nil, errors.New("this client has no session; it joined later, or was started again in the middle of a round")
}

// Answer does the steps beside training.
func (g *guard) Answer(client int, o engine.Order) (answer tensor.Map, ok bool, err error) {
	switch o.Survey {
	case keysStep:
		answer, err = g.begin(client, o)
	case sharesStep, revealStep:
		var s *session
		if s, err = g.of(client); err == nil {
			answer, err = s.answer(g.l, o)
		}
	default:
		return nil, false, nil
	}
	if err != nil {
		err = fmt.Errorf("round %d, client %d, %s: %w", o.Round, client, o.Survey, err)
	}
	return answer, true, err
}

// begin starts the session that an order names, or answers again as before.
func (g *guard) begin(client int, o engine.Order) (tensor.Map, error) {
	b, err := unpack(o.Down, sessionName)
	if err != nil {
		return nil, err
	}
	t, err := g.l.decodeTerms(b, o.Of)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sessions[client]; s != nil && s.round == o.Round && s.terms == t {
		return s.keys, nil
	}
	c, err := secagg.NewClient(client, t, rand.Reader)
	if err != nil {
		return nil, err
	}
	k, err := c.Advertise()
	if err != nil {
		return nil, err
	}
	s := &session{round: o.Round, terms: t, client: c, keys: pack(keysName, k.Encode())}
	g.sessions[client] = s
	return s.keys, nil
}

func (s *session) answer(l *Layer, o engine.Order) (tensor.Map, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.round != o.Round {
		return nil, fmt.Errorf("the session is of round %d", s.round)
	}
	if o.Survey == sharesStep {
		b, err := unpack(o.Down, rosterName)
		if err != nil || s.shares != nil && bytes.Equal(b, s.roster) {
			return s.shares, err
		}
		r, err := secagg.DecodeRoster(b)
		if err != nil {
			return nil, err
		}
		if least := l.threshold(len(r)); s.terms.Threshold < least {
			return nil, fmt.Errorf("the server's threshold is %d of %d clients; by the configuration it must be %d",
				s.terms.Threshold, len(r), least)
		}
		e, err := s.client.Share(r)
		if err != nil {
			return nil, err
		}
		s.roster, s.shares = slices.Clone(b), pack(sharesName, e.Encode())
		return s.shares, nil
	}
	b, err := unpack(o.Down, questionName)
	if err != nil {
		return nil, err
	}
	q, err := secagg.DecodeQuestion(b)
	if err != nil {
		return nil, err
	}
	a, err := s.client.Reveal(q)
	if err != nil {
		return nil, err
	}
	return pack(revealName, a.Encode()), nil
}

// Seal masks an upload.
func (g *guard) Seal(client int, o engine.Order, up *method.Upload, stats *engine.Stats) error {
	s, err := g.of(client)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := unpack(o.Each[client], inboxName)
	if err != nil {
		return err
	}
	if s.round != o.Round {
		return fmt.Errorf("the session is of round %d", s.round)
	}
	if s.masked == nil || !bytes.Equal(b, s.inbox) {
		if err := s.mask(g.l, o.Shared, b, *up, stats.Loss); err != nil {
			return err
		}
	}
	*up, *stats = method.Upload{Client: client, N: 1, Shared: tensor.Map{}, Extra: s.masked}, engine.Stats{}
	return nil
}

func (s *session) mask(l *Layer, sent tensor.Map, inbox []byte, up method.Upload, loss float64) error {
	in, err := secagg.DecodeEnvelopes(inbox)
	if err != nil {
		return err
	}
	v, err := l.vector(sent, up, loss)
	if err != nil {
		return err
	}
	values := make([]uint64, len(v))
	for i, x := range v {
		values[i] = s.terms.Ring.Of(x)
	}
	y, err := s.client.Mask(in, values)
	if err == nil {
		s.inbox, s.masked = slices.Clone(inbox), pack(maskedName, s.terms.Ring.Encode(y))
	}
	return err
}

// encodeTerms writes what a session's first order tells: its name, the threshold and the length of vectors.
func encodeTerms(t secagg.Terms) []byte {
	b := binary.LittleEndian.AppendUint32(t.Session[:], uint32(t.Threshold))
	return binary.LittleEndian.AppendUint64(b, uint64(t.Length))
}

// decodeTerms reads what encodeTerms wrote; the ring follows from the configuration and the number of clients.
func (l *Layer) decodeTerms(b []byte, clients int) (t secagg.Terms, err error) {
	if len(b) != secagg.SessionSize+12 {
		return t, fmt.Errorf("the session's terms have %d bytes", len(b))
	}
	copy(t.Session[:], b)
	t.Threshold = int(binary.LittleEndian.Uint32(b[secagg.SessionSize:]))
	n := binary.LittleEndian.Uint64(b[secagg.SessionSize+4:])
	if n > 1<<40 {
		return t, fmt.Errorf("vectors of %d numbers", n)
	}
	t.Length = int(n)
	t.Ring, err = l.ring(clients)
	return t, err
}
