package secagg

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Params are the parameters that all parties of a session agree on.
type Params struct {
	Session   Session
	Round     int
	Clients   int // in the run; client numbers lie below it
	Threshold int // clients that must stay to the end
	Length    int // elements of a vector
	Ring      Ring
	Context   [sha256.Size]byte // digest of further agreements, such as the run
}

func (t Params) check() error {
	if t.Threshold < 2 || t.Length < 1 || t.Ring.Width < 1 || t.Ring.Width > 8 {
		return fmt.Errorf("secure aggregation with a threshold of %d, %d numbers of %d bytes; the threshold must be "+
			"2 or more, with at least one number of 1 to 8 bytes", t.Threshold, t.Length, t.Ring.Width)
	}
	return nil
}

// step is the progress of a server.
type step int

const (
	advertise step = iota
	share
	check
	mask
	agreement
	reveal
	done
)

// errOrder refuses a message at the wrong time.
var errOrder = errors.New("out of order; a session goes through its steps once")

// ClientState is all that a client must remember of a session between messages and across restarts. It holds the
// session's secrets.
type ClientState struct {
	Terms                Params
	Envelope, Pair, Seed []byte // secrets
	Advert               []byte
	Roster               []byte   // as received
	Shares               [][]byte // the client's own shares of its pairwise key and of its seed
	Sent                 []byte   // encrypted shares
	Inbox, Complaints    []byte
	Senders              []int // clients that the vector is masked for
	Model                [sha256.Size]byte
	Masked               []byte
	Question, Signature  []byte
	Revealed             bool
}

// Client is one client in one session. A step with the same input returns the same answer, byte for byte; a step with a
// different input is refused. The caller must keep State before it sends an answer. A Client is not safe for concurrent
// use.
type Client struct {
	id     int
	who    Identity
	peers  Peers
	random io.Reader
	m      ClientState

	envelope   secret
	pair, seed secret
	roster     Roster
	sharedKeys map[int][]byte // by dealer: the Diffie-Hellman secret that opens its encrypted shares
	pairShares map[int][]byte // by whose they are, its own too
	seedShares map[int][]byte
}

// NewClient starts a session; random must be the Reader of crypto/rand except in tests. Share adds to peers.
func NewClient(id int, t Params, who Identity, peers Peers, random io.Reader) (*Client, error) {
	if id < 0 || id >= maxID {
		return nil, fmt.Errorf("client %d: numbers of clients must lie between 0 and %d", id, maxID-1)
	}
	m := ClientState{Terms: t, Envelope: newSecret(random).bytes(), Pair: newSecret(random).bytes(),
		Seed: newSecret(random).bytes()}
	c := &Client{id: id, who: who, peers: peers, random: random, m: m, sharedKeys: map[int][]byte{}}
	err := c.restore()
	if err != nil {
		return nil, err
	}
	a := Advert{Keys: c.keys()}
	if a.Proof, err = who.Proof(id); err != nil {
		return nil, err
	}
	if a.Signature, err = who.Sign(id, advertised(t, id, a.Keys)); err != nil {
		return nil, err
	}
	c.m.Advert = a.Encode()
	return c, nil
}

// Restore continues a session from its State.
func Restore(id int, m ClientState, who Identity, peers Peers, random io.Reader) (*Client, error) {
	c := &Client{id: id, who: who, peers: peers, random: random, m: m, sharedKeys: map[int][]byte{}}
	if err := c.restore(); err != nil {
		return nil, fmt.Errorf("this client's saved state of the session is damaged: %w", err)
	}
	return c, nil
}

// restore derives the other fields from the state.
func (c *Client) restore() (err error) {
	if err := c.m.Terms.check(); err != nil {
		return err
	}
	for _, key := range []struct {
		stored []byte
		key    *secret
	}{{c.m.Envelope, &c.envelope}, {c.m.Pair, &c.pair}, {c.m.Seed, &c.seed}} {
		if key.key.Scalar, err = scalar(key.stored); err != nil {
			return err
		}
	}
	if c.m.Roster != nil {
		if c.roster, err = DecodeRoster(c.m.Roster); err != nil {
			return err
		}
		if len(c.m.Shares) != 2 {
			return fmt.Errorf("it has %d shares of its own", len(c.m.Shares))
		}
	}
	if c.m.Inbox == nil {
		return nil
	}
	in, err := DecodeEncryptedShares(c.m.Inbox)
	if err == nil {
		_, err = c.open(in)
	}
	return err
}

// State returns the state for Restore.
func (c *Client) State() ClientState { return c.m }

// Terms returns the parameters of the session.
func (c *Client) Terms() Params { return c.m.Terms }

func (c *Client) keys() (k Keys) {
	copy(k.Envelope[:], c.envelope.point())
	copy(k.Pair[:], c.pair.point())
	copy(k.Seed[:], c.seed.point())
	return k
}

// Advertise returns the client's signed public keys.
func (c *Client) Advertise() (Joining, error) {
	a, err := DecodeAdvert(c.m.Advert)
	j := Joining{a, map[int][]byte{}}
	for id, proof := range c.peers {
		h := sha256.Sum256(proof)
		j.Known[id] = h[:fingerprintSize]
	}
	return j, err
}

// Share returns the shares of this client's secrets for the clients of a roster, encrypted for each of them, with
// commitments to all shares.
func (c *Client) Share(r Roster) (EncryptedShares, error) {
	if c.m.Roster != nil {
		if c.roster.digest() != r.digest() {
			return nil, errors.New("this client accepted another roster for this session; a second one could reveal " +
				"its vector")
		}
		return DecodeEncryptedShares(c.m.Sent)
	}
	proofs, err := c.check(r)
	if err != nil {
		return nil, err
	}
	ids, t := slices.Sorted(maps.Keys(r)), c.m.Terms
	pair, seed := c.pair.split(c.random, t.Threshold, ids), c.seed.split(c.random, t.Threshold, ids)
	out := EncryptedShares{}
	for _, id := range ids {
		var l EncryptedShare
		copy(l.Commitments[ofPair*keySize:], pair[id].point())
		copy(l.Commitments[ofSeed*keySize:], seed[id].point())
		if id != c.id {
			shared, err := c.shared(r, id)
			if err == nil {
				l.Sealed = sealShares(shared, t.Session, c.id, id, pair[id].bytes(), seed[id].bytes())
				l.Signature, err = c.who.Sign(c.id, dealt(t, c.id, id, l))
			}
			if err != nil {
				return nil, fmt.Errorf("the keys of client %d: %w", id, err)
			}
		}
		out[id] = l
	}
	maps.Copy(c.peers, proofs)
	c.roster = r
	c.m.Roster, c.m.Sent = r.Encode(), out.Encode()
	c.m.Shares = [][]byte{pair[c.id].bytes(), seed[c.id].bytes()}
	return out, nil
}

// check reports an invalid roster, and returns the proofs of the other clients in it.
func (c *Client) check(r Roster) (Peers, error) {
	t := c.m.Terms
	switch own := r[c.id]; {
	case own.Keys != c.keys():
		return nil, errors.New("the roster does not have this client's own keys")
	case len(r) < t.Threshold:
		return nil, fmt.Errorf("the roster has %d clients; %d must stay to the end", len(r), t.Threshold)
	case len(r) >= 2*t.Threshold:
		return nil, fmt.Errorf("the roster has %d clients, of which only %d, no more than half, must stay: a server "+
			"could ask two halves for different secrets", len(r), t.Threshold)
	}
	seen, ids := map[[keySize]byte]int{}, slices.Sorted(maps.Keys(r))
	for _, id := range ids {
		if id >= t.Clients {
			return nil, fmt.Errorf("the roster has client %d, but there are only %d clients", id, t.Clients)
		}
		for _, public := range [][keySize]byte{r[id].Envelope, r[id].Pair} {
			if other, ok := seen[public]; ok {
				return nil, fmt.Errorf("the roster has the same key for clients %d and %d", other, id)
			}
			seen[public] = id
		}
	}
	proofs := Peers{}
	for _, id := range ids {
		if id == c.id {
			continue
		}
		a := r[id]
		proof, err := c.peers.proof(c.who, id, a.Proof)
		if err != nil {
			return nil, fmt.Errorf("the roster: %w", err)
		}
		if err := c.who.Verify(id, proof, advertised(t, id, a.Keys), a.Signature); err != nil {
			return nil, fmt.Errorf("the roster: the keys of client %d: %w", id, err)
		}
		proofs[id] = proof
	}
	return proofs, nil
}

// shared returns the Diffie-Hellman secret of this client and another for encrypted shares.
func (c *Client) shared(r Roster, id int) (b []byte, err error) {
	if c.sharedKeys[id] == nil {
		key := r[id].Envelope
		c.sharedKeys[id], err = agree(c.envelope, key[:])
	}
	return c.sharedKeys[id], err
}

// Check verifies the shares that other clients dealt to this one, and returns the complaints about them. A session has
// one set of encrypted shares.
func (c *Client) Check(in EncryptedShares) (Complaints, error) {
	switch {
	case c.m.Roster == nil:
		return nil, errOrder
	case c.m.Inbox != nil && !bytes.Equal(in.Encode(), c.m.Inbox):
		return nil, errors.New("this client got other shares of this session")
	case c.m.Inbox != nil:
		return DecodeComplaints(c.m.Complaints)
	}
	out, err := c.open(in)
	if err == nil {
		c.m.Inbox, c.m.Complaints = in.Encode(), out.Encode()
	}
	return out, err
}

// open decrypts the shares that other clients dealt, and complains about invalid ones. It opens, and shows to others,
// only shares with the dealer's signature, since others may come from the server.
func (c *Client) open(in EncryptedShares) (Complaints, error) {
	t, out := c.m.Terms, Complaints{}
	pairs, seeds := map[int][]byte{c.id: c.m.Shares[0]}, map[int][]byte{c.id: c.m.Shares[1]}
	for _, id := range slices.Sorted(maps.Keys(in)) {
		a, ok := c.roster[id]
		if !ok || id == c.id {
			return nil, fmt.Errorf("shares of client %d, which is not one of the others of the roster", id)
		}
		l := in[id]
		if c.who.Verify(id, c.peers[id], dealt(t, id, c.id, l), l.Signature) != nil {
			out[id] = Complaint{}
			continue
		}
		shared, err := c.shared(c.roster, id)
		if err != nil {
			return nil, fmt.Errorf("the keys of client %d: %w", id, err)
		}
		if pair, seed, err := l.open(shared, t.Session, id, c.id); err == nil {
			pairs[id], seeds[id] = pair, seed
		} else if out[id], err = complain(t, c.envelope, a.Envelope[:], c.random); err != nil {
			return nil, fmt.Errorf("the keys of client %d: %w", id, err)
		}
	}
	c.pairShares, c.seedShares = pairs, seeds
	return out, nil
}

// senders reports why this client refuses to mask a vector for certain clients.
func (c *Client) senders(list []int) error {
	if len(list) < c.m.Terms.Threshold {
		return fmt.Errorf("%d clients may upload; %d must stay to the end", len(list), c.m.Terms.Threshold)
	}
	if !slices.Contains(list, c.id) {
		return errors.New("the server excludes this client, but asks it to upload")
	}
	for _, id := range list {
		if c.seedShares[id] == nil {
			return fmt.Errorf("client %d may upload, but this client has no shares of its secrets", id)
		}
	}
	return nil
}

// Mask masks a vector. senders are the clients that may upload, in ascending order; model is a digest of the input of
// the vector, such as the parameters from the server. A session has one vector: the same senders and model return it
// again, whatever values are.
func (c *Client) Mask(senders []int, model [sha256.Size]byte, values []uint64) ([]uint64, error) {
	t := c.m.Terms
	switch {
	case c.m.Inbox == nil:
		return nil, errOrder
	case c.m.Masked != nil && c.m.Model != model:
		return nil, errors.New("this client already sent a vector of this session made from other parameters; a " +
			"second one could reveal both")
	case c.m.Masked != nil && !slices.Equal(senders, c.m.Senders):
		return nil, errors.New("this client already sent a vector of this session masked for other clients; a second " +
			"one could reveal both")
	case c.m.Masked != nil:
		return t.Ring.Decode(c.m.Masked)
	case len(values) != t.Length:
		return nil, fmt.Errorf("a vector of %d numbers; the session is for %d", len(values), t.Length)
	}
	if err := c.senders(senders); err != nil {
		return nil, err
	}
	out := make([]uint64, len(values))
	t.Ring.add(out, values)
	t.Ring.addMask(out, ownMask(c.seed, t.Session, c.id), false)
	v := viewOf(t, c.roster, senders, model)
	for _, id := range senders {
		if id == c.id {
			continue
		}
		key := c.roster[id].Pair
		shared, err := agree(c.pair, key[:])
		if err != nil {
			return nil, fmt.Errorf("the keys of client %d: %w", id, err)
		}
		t.Ring.addMask(out, pairMask(shared, t.Session, v, c.id, id), id < c.id)
	}
	c.m.Senders, c.m.Model, c.m.Masked = senders, model, t.Ring.Encode(out)
	return out, nil
}

// Agree signs the client's view of the session and the question, if the question keeps every vector hidden. A session
// has one signed question.
func (c *Client) Agree(q UnmaskRequest) ([]byte, error) {
	t := c.m.Terms
	switch {
	case c.m.Masked == nil:
		return nil, errOrder
	case c.m.Signature != nil && !bytes.Equal(q.Encode(), c.m.Question):
		return nil, errors.New("this client agreed to another question of this session; two answers could reveal one " +
			"client's vector")
	case c.m.Signature != nil:
		return c.m.Signature, nil
	case len(q.Survivors) < t.Threshold:
		return nil, fmt.Errorf("the server states that %d clients stayed; it must be %d", len(q.Survivors), t.Threshold)
	case !slices.Contains(q.Survivors, c.id):
		return nil, errors.New("the server states that this client dropped out, but it uploaded")
	}
	seen := map[int]bool{}
	for _, id := range slices.Concat(q.Survivors, q.Dropped) {
		if seen[id] {
			return nil, fmt.Errorf("both secrets of client %d are requested, or one twice; together they reveal its "+
				"vector", id)
		}
		if seen[id] = true; !slices.Contains(c.m.Senders, id) {
			return nil, fmt.Errorf("a secret of client %d is requested, which could not upload", id)
		}
	}
	if len(seen) != len(c.m.Senders) {
		return nil, fmt.Errorf("the question is about %d clients; %d could upload", len(seen), len(c.m.Senders))
	}
	s, err := c.who.Sign(c.id, agreed(c.View(), q))
	if err == nil {
		c.m.Question, c.m.Signature = q.Encode(), s
	}
	return s, err
}

// View returns a digest of what this client received before it masked its vector. All clients of a round have the same
// one.
func (c *Client) View() [sha256.Size]byte { return viewOf(c.m.Terms, c.roster, c.m.Senders, c.m.Model) }

// Reveal answers the signed question, once Threshold clients have signed the same one.
func (c *Client) Reveal(signed Signatures) (Shares, error) {
	if c.m.Signature == nil {
		return nil, errOrder
	}
	q, err := DecodeUnmaskRequest(c.m.Question)
	if err != nil {
		return nil, err
	}
	if !c.m.Revealed {
		if err := c.checkSignatures(q, signed); err != nil {
			return nil, err
		}
	}
	out := Shares{}
	for _, id := range q.Survivors {
		out[id] = c.seedShares[id]
	}
	for _, id := range q.Dropped {
		out[id] = c.pairShares[id]
	}
	c.m.Revealed = true
	return out, nil
}

// checkSignatures reports too few signatures of this client's view and question.
func (c *Client) checkSignatures(q UnmaskRequest, signed Signatures) error {
	message, n := agreed(c.View(), q), 1 // its own
	for _, id := range q.Survivors {
		if s, ok := signed[id]; ok && id != c.id {
			if err := c.who.Verify(id, c.peers[id], message, s); err != nil {
				return fmt.Errorf("client %d did not sign this client's view of the round: its roster, parameters or "+
					"clients that stayed differ: %w", id, err)
			}
			n++
		}
	}
	if n < c.m.Terms.Threshold {
		return fmt.Errorf("%d clients signed this client's view of the round; it must be %d", n,
			c.m.Terms.Threshold)
	}
	return nil
}

// Transcript is a client's record of a session.
type Transcript struct {
	Round     int    `json:"round"`
	Session   string `json:"session"`
	Threshold int    `json:"threshold"`
	Roster    []int  `json:"roster"`
	Senders   []int  `json:"senders"`   // who may upload
	Survivors []int  `json:"survivors"` // clients whose vectors are in the sum
	View      string `json:"view"`      // digest; the same for all clients of the round
	Model     string `json:"model"`     // digest of the parameters that the round began from
	Vector    string `json:"vector"`    // digest of this client's masked vector
}

// Transcript returns the record of the session up to now.
func (c *Client) Transcript() Transcript {
	t, v := c.m.Terms, c.View()
	q, _ := DecodeUnmaskRequest(c.m.Question)
	vector := sha256.Sum256(c.m.Masked)
	return Transcript{Round: t.Round, Session: fmt.Sprintf("%x", t.Session), Threshold: t.Threshold,
		Roster: slices.Sorted(maps.Keys(c.roster)), Senders: c.m.Senders, Survivors: q.Survivors,
		View: fmt.Sprintf("%x", v), Model: fmt.Sprintf("%x", c.m.Model), Vector: fmt.Sprintf("%x", vector)}
}
