package secagg

import (
	"crypto/ecdh"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Terms are what all parties of a session agree on.
type Terms struct {
	Session   Session
	Threshold int // clients that must stay to the end
	Length    int // elements of a vector
	Ring      Ring
}

func (t Terms) check() error {
	if t.Threshold < 2 || t.Length < 1 || t.Ring.Width < 1 || t.Ring.Width > 8 {
		return fmt.Errorf("secure aggregation with a threshold of %d, %d numbers of %d bytes; it needs a threshold "+
			"of 2 or more, one number, and 1 to 8 bytes",
			t.Threshold, t.Length, t.Ring.Width)
	}
	return nil
}

// step is how far a party has come.
type step int

const (
	advertise step = iota
	share
	mask
	reveal
	done
)

// errOrder refuses what comes at the wrong time.
var errOrder = errors.New("out of order; a session goes through its steps once")

// Client is one client in one session. It is for one use, and not safe for concurrent use.
type Client struct {
	id     int
	t      Terms
	random io.Reader
	step   step

	envelope   *ecdh.PrivateKey
	pair, seed secret
	roster     Roster
	sealed     map[int][]byte // what is agreed with each other client, for envelopes
	pairShares map[int][]byte // by whose they are, its own too
	seedShares map[int][]byte
	asked      Question
}

// NewClient starts a session; random must be crypto/rand's Reader but in tests.
func NewClient(id int, t Terms, random io.Reader) (*Client, error) {
	if id < 0 || id >= maxID {
		return nil, fmt.Errorf("client %d; numbers must lie between 0 and %d", id, maxID-1)
	}
	c := &Client{id: id, t: t, random: random, pair: newSecret(random), seed: newSecret(random),
		sealed: map[int][]byte{}}
	c.envelope = newSecret(random).private(t.Session)
	return c, t.check()
}

// Advertise gives the client's public keys.
func (c *Client) Advertise() (Keys, error) {
	if c.step != advertise {
		return Keys{}, errOrder
	}
	c.step = share
	return c.keys(), nil
}

func (c *Client) keys() (k Keys) {
	copy(k.Envelope[:], c.envelope.PublicKey().Bytes())
	copy(k.Pair[:], c.pair.private(c.t.Session).PublicKey().Bytes())
	copy(k.Seed[:], c.seed.commitment(c.t.Session, c.id))
	return k
}

// Share gives the other clients of a roster their shares of this one's secrets, sealed for each.
func (c *Client) Share(r Roster) (Envelopes, error) {
	if c.step != share {
		return nil, errOrder
	}
	seen := map[[keySize]byte]int{}
	for id, k := range r {
		for _, public := range [][keySize]byte{k.Envelope, k.Pair} {
			if other, ok := seen[public]; ok {
				return nil, fmt.Errorf("the roster has one key twice, of clients %d and %d", other, id)
			}
			seen[public] = id
		}
	}
	switch {
	case r[c.id] != c.keys():
		return nil, errors.New("the roster does not have this client's own keys")
	case len(r) < c.t.Threshold:
		return nil, fmt.Errorf("the roster has %d clients; %d must stay to the end", len(r), c.t.Threshold)
	case len(r) >= 2*c.t.Threshold:
		return nil, fmt.Errorf("the roster has %d clients, of which no more than half, %d, must stay: a server could "+
			"ask two halves for different secrets", len(r), c.t.Threshold)
	}
	ids := slices.Sorted(maps.Keys(r))
	pair, seed := c.pair.split(c.random, c.t.Threshold, ids), c.seed.split(c.random, c.t.Threshold, ids)
	out := Envelopes{}
	for _, id := range ids {
		if id == c.id {
			continue
		}
		key := r[id].Envelope
		shared, err := agree(c.envelope, key[:])
		if err == nil {
			out[id], err = sealShares(shared, c.t.Session, c.id, id, pair[id], seed[id])
		}
		if err != nil {
			return nil, fmt.Errorf("the keys of client %d: %w", id, err)
		}
		c.sealed[id] = shared
	}
	c.pairShares, c.seedShares = map[int][]byte{c.id: pair[c.id]}, map[int][]byte{c.id: seed[c.id]}
	c.roster, c.step = r, mask
	return out, nil
}

// Mask hides a vector, given what the other clients sent this one.
func (c *Client) Mask(inbox Envelopes, values []uint64) ([]uint64, error) {
	switch {
	case c.step != mask:
		return nil, errOrder
	case len(values) != c.t.Length:
		return nil, fmt.Errorf("a vector of %d numbers; the session is for %d", len(values), c.t.Length)
	case len(inbox)+1 < c.t.Threshold:
		return nil, fmt.Errorf("%d clients sent shares; %d must stay to the end", len(inbox)+1, c.t.Threshold)
	}
	out := make([]uint64, len(values))
	c.t.Ring.add(out, values, false)
	c.t.Ring.stretch(out, ownMask(c.seed, c.t.Session, c.id), false)
	own := c.pair.private(c.t.Session)
	for _, id := range slices.Sorted(maps.Keys(inbox)) {
		k, ok := c.roster[id]
		if !ok || id == c.id {
			return nil, fmt.Errorf("shares of client %d, who is not among the others of the roster", id)
		}
		pair, seed, err := openShares(c.sealed[id], c.t.Session, id, c.id, inbox[id])
		if err != nil {
			return nil, fmt.Errorf("the shares of client %d: %w", id, err)
		}
		shared, err := agree(own, k.Pair[:])
		if err != nil {
			return nil, fmt.Errorf("the keys of client %d: %w", id, err)
		}
		c.pairShares[id], c.seedShares[id] = pair, seed
		c.t.Ring.stretch(out, pairMask(shared, c.t.Session, c.id, id), id < c.id)
	}
	c.step = reveal
	return out, nil
}

// Reveal answers the server's question for shares, if it is one that keeps every vector hidden. A question that was
// answered is answered again, another one never.
func (c *Client) Reveal(q Question) (Shares, error) {
	switch {
	case c.step == done && !(slices.Equal(q.Survivors, c.asked.Survivors) && slices.Equal(q.Dropped, c.asked.Dropped)):
		return nil, errors.New("this client answered another question of this session; two answers could show one " +
			"client's vector")
	case c.step != reveal && c.step != done:
		return nil, errOrder
	case len(q.Survivors) < c.t.Threshold:
		return nil, fmt.Errorf("%d clients are said to have stayed; it must be %d", len(q.Survivors), c.t.Threshold)
	case !slices.Contains(q.Survivors, c.id):
		return nil, errors.New("this client is said to have dropped out, but it uploaded")
	}
	out := Shares{}
	for i, list := range [][]int{q.Survivors, q.Dropped} {
		from := []map[int][]byte{c.seedShares, c.pairShares}[i]
		for _, id := range list {
			if out[id] != nil {
				return nil, fmt.Errorf("both secrets of client %d are asked for, or one twice; together they show "+
					"its vector", id)
			}
			if out[id] = from[id]; out[id] == nil {
				return nil, fmt.Errorf("a secret of client %d is asked for, who sent no shares", id)
			}
		}
	}
	if len(out) != len(c.seedShares) {
		return nil, fmt.Errorf("the question is about %d clients; %d sent shares", len(out), len(c.seedShares))
	}
	c.asked, c.step = Question{slices.Clone(q.Survivors), slices.Clone(q.Dropped)}, done
	return out, nil
}
