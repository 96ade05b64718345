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
	state  ClientState

	envelope   secret
	pair, seed secret
	roster     Roster
	sharedKeys map[int][]byte // by dealer: the Diffie-Hellman secret that opens its encrypted shares
	pairShares map[int][]byte // by whose they are, its own too
	seedShares map[int][]byte
}

// NewClient starts a session; random must be the Reader of crypto/rand except in tests. Share adds to peers.
func NewClient(id int, params Params, who Identity, peers Peers, random io.Reader) (*Client, error) {
	if id < 0 || id >= maxID {
		return nil, fmt.Errorf("client %d: numbers of clients must lie between 0 and %d", id, maxID-1)
	}

	m := ClientState{Terms: params, Envelope: newSecret(random).bytes(), Pair: newSecret(random).bytes(),
		Seed: newSecret(random).bytes()}
	client := &Client{id: id, who: who, peers: peers, random: random, state: m, sharedKeys: map[int][]byte{}}
	err := client.restore()
	if err != nil {
		return nil, err
	}

	a := Advert{Keys: client.keys()}
	if a.Proof, err = who.Proof(id); err != nil {
		return nil, err
	}

	if a.Signature, err = who.Sign(id, advertised(params, id, a.Keys)); err != nil {
		return nil, err
	}

	client.state.Advert = a.Encode()
	return client, nil
}

// Restore continues a session from its State.
func Restore(id int, m ClientState, who Identity, peers Peers, random io.Reader) (*Client, error) {
	c := &Client{id: id, who: who, peers: peers, random: random, state: m, sharedKeys: map[int][]byte{}}
	if err := c.restore(); err != nil {
		return nil, fmt.Errorf("this client's saved state of the session is damaged: %w", err)
	}
	return c, nil
}

// restore derives the other fields from the state.
func (c *Client) restore() (err error) {
	if err := c.state.Terms.check(); err != nil {
		return err
	}

	for _, key := range []struct {
		stored []byte
		key    *secret
	}{{c.state.Envelope, &c.envelope}, {c.state.Pair, &c.pair}, {c.state.Seed, &c.seed}} {
		if key.key.Scalar, err = scalar(key.stored); err != nil {
			return err
		}
	}

	if c.state.Roster != nil {
		if c.roster, err = DecodeRoster(c.state.Roster); err != nil {
			return err
		}
	}

	if (c.state.Roster != nil || c.state.Inbox != nil) && len(c.state.Shares) != 2 {
		return fmt.Errorf("it has %d shares of its own", len(c.state.Shares))
	}

	if c.state.Inbox == nil {
		return nil
	}

	in, err := DecodeEncryptedShares(c.state.Inbox)
	if err != nil {
		return err
	}

	before, err := DecodeComplaints(c.state.Complaints)
	if err == nil {
		_, err = c.open(in, before)
	}

	return err
}

// State returns the state for Restore.
func (c *Client) State() ClientState { return c.state }

// Terms returns the parameters of the session.
func (c *Client) Terms() Params { return c.state.Terms }

func (c *Client) keys() (k Keys) {
	copy(k.Envelope[:], c.envelope.point())
	copy(k.Pair[:], c.pair.point())
	copy(k.Seed[:], c.seed.point())
	return k
}

// Advertise returns the client's signed public keys.
func (c *Client) Advertise() (Joining, error) {
	a, err := DecodeAdvert(c.state.Advert)
	j := Joining{a, map[int][]byte{}}
	for id, proof := range c.peers {
		j.Known[id] = Fingerprint(proof)
	}
	return j, err
}

// Share returns the shares of this client's secrets for the clients of a roster, encrypted for each of them, with
// commitments to all shares.
func (c *Client) Share(roster Roster) (EncryptedShares, error) {
	if c.state.Roster != nil {
		if c.roster.digest() != roster.digest() {
			return nil, errors.New("this client accepted another roster for this session; a second one could reveal " +
				"its vector")
		}
		return DecodeEncryptedShares(c.state.Sent)
	}

	proofs, err := c.check(roster)
	if err != nil {
		return nil, err
	}

	ids, params := slices.Sorted(maps.Keys(roster)), c.state.Terms
	pair, seed := c.pair.split(c.random, params.Threshold, ids), c.seed.split(c.random, params.Threshold, ids)
	out := EncryptedShares{}
	for _, id := range ids {
		var share EncryptedShare
		copy(share.Commitments[ofPair*keySize:], pair[id].point())
		copy(share.Commitments[ofSeed*keySize:], seed[id].point())
		if id != c.id {
			shared, err := c.shared(roster, id)
			if err == nil {
				share.Sealed = sealShares(shared, params.Session, c.id, id, pair[id].bytes(), seed[id].bytes())
				share.Signature, err = c.who.Sign(c.id, dealt(params, c.id, id, share))
			}
			if err != nil {
				return nil, fmt.Errorf("the keys of client %d: %w", id, err)
			}
		}

		out[id] = share
	}

	maps.Copy(c.peers, proofs)
	c.roster = roster
	c.state.Roster, c.state.Sent = roster.Encode(), out.Encode()
	c.state.Shares = [][]byte{pair[c.id].bytes(), seed[c.id].bytes()}
	return out, nil
}

// check reports an invalid roster, and returns the proofs of the other clients in it.
func (c *Client) check(roster Roster) (Peers, error) {
	params := c.state.Terms
	switch own := roster[c.id]; {
	case own.Keys != c.keys():
		return nil, errors.New("the roster does not have this client's own keys")
	case len(roster) < params.Threshold:
		return nil, fmt.Errorf("the roster has %d clients; %d must stay to the end", len(roster), params.Threshold)
	case len(roster) >= 2*params.Threshold:
		return nil, fmt.Errorf("the roster has %d clients, of which only %d, no more than half, must stay: a server "+
			"could ask two halves for different secrets", len(roster), params.Threshold)
	}

	seen, ids := map[[keySize]byte]int{}, slices.Sorted(maps.Keys(roster))
	for _, id := range ids {
		if id >= params.Clients {
			return nil, fmt.Errorf("the roster has client %d, but there are only %d clients", id, params.Clients)
		}
		for _, public := range [][keySize]byte{roster[id].Envelope, roster[id].Pair} {
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
		a := roster[id]
		proof, err := c.peers.proof(c.who, id, a.Proof)
		if err != nil {
			return nil, fmt.Errorf("the roster: %w", err)
		}
		if err := c.who.Verify(id, proof, advertised(params, id, a.Keys), a.Signature); err != nil {
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
	case c.state.Roster == nil:
		return nil, errOrder
	case c.state.Inbox != nil && !bytes.Equal(in.Encode(), c.state.Inbox):
		return nil, errors.New("this client got other shares of this session")
	case c.state.Inbox != nil:
		return DecodeComplaints(c.state.Complaints)
	}

	out, err := c.open(in, nil)
	if err == nil {
		c.state.Inbox, c.state.Complaints = in.Encode(), out.Encode()
	}

	return out, err
}

// open decrypts the shares that other clients dealt, and complains about invalid ones. It opens, and shows to others,
// only shares with the dealer's signature, since others may come from the server. before are the complaints of an
// earlier process, which verified the signatures, perhaps by certificates that have lapsed since; nil for none.
func (c *Client) open(in EncryptedShares, before Complaints) (Complaints, error) {
	params, out := c.state.Terms, Complaints{}
	pairs, seeds := map[int][]byte{c.id: c.state.Shares[0]}, map[int][]byte{c.id: c.state.Shares[1]}
	for _, id := range slices.Sorted(maps.Keys(in)) {
		advert, ok := c.roster[id]
		if !ok || id == c.id {
			return nil, fmt.Errorf("shares of client %d, which is not one of the others of the roster", id)
		}

		share := in[id]
		if _, listed := before[id]; listed || before == nil &&
			c.who.Verify(id, c.peers[id], dealt(params, id, c.id, share), share.Signature) != nil {
			out[id] = Complaint{}
			continue
		}

		shared, err := c.shared(c.roster, id)
		if err != nil {
			return nil, fmt.Errorf("the keys of client %d: %w", id, err)
		}

		if pair, seed, err := share.open(shared, params.Session, id, c.id); err == nil {
			pairs[id], seeds[id] = pair, seed
		} else if out[id], err = complain(params, c.envelope, advert.Envelope[:], c.random); err != nil {
			return nil, fmt.Errorf("the keys of client %d: %w", id, err)
		}
	}

	c.pairShares, c.seedShares = pairs, seeds
	return out, nil
}

// senders reports why this client refuses to mask a vector for certain clients.
func (c *Client) senders(list []int) error {
	if len(list) < c.state.Terms.Threshold {
		return fmt.Errorf("%d clients may upload; %d must stay to the end", len(list), c.state.Terms.Threshold)
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
	params := c.state.Terms
	switch {
	case c.state.Inbox == nil:
		return nil, errOrder
	case c.state.Masked != nil && c.state.Model != model:
		return nil, errors.New("this client already sent a vector of this session made from other parameters; a " +
			"second one could reveal both")
	case c.state.Masked != nil && !slices.Equal(senders, c.state.Senders):
		return nil, errors.New("this client already sent a vector of this session masked for other clients; a second " +
			"one could reveal both")
	case c.state.Masked != nil:
		return params.Ring.Decode(c.state.Masked)
	case len(values) != params.Length:
		return nil, fmt.Errorf("a vector of %d numbers; the session is for %d", len(values), params.Length)
	}

	if err := c.senders(senders); err != nil {
		return nil, err
	}

	out := make([]uint64, len(values))
	params.Ring.add(out, values)
	params.Ring.addMask(out, ownMask(c.seed, params.Session, c.id), false)
	v := viewOf(params, c.roster, senders, model)
	for _, id := range senders {
		if id == c.id {
			continue
		}
		key := c.roster[id].Pair
		shared, err := agree(c.pair, key[:])
		if err != nil {
			return nil, fmt.Errorf("the keys of client %d: %w", id, err)
		}
		params.Ring.addMask(out, pairMask(shared, params.Session, v, c.id, id), id < c.id)
	}

	c.state.Senders, c.state.Model, c.state.Masked = senders, model, params.Ring.Encode(out)
	return out, nil
}

// Agree signs the client's view of the session and the question, if the question keeps every vector hidden. A session
// has one signed question.
func (c *Client) Agree(request UnmaskRequest) ([]byte, error) {
	params := c.state.Terms
	switch {
	case c.state.Masked == nil:
		return nil, errOrder
	case c.state.Signature != nil && !bytes.Equal(request.Encode(), c.state.Question):
		return nil, errors.New("this client agreed to another question of this session; two answers could reveal one " +
			"client's vector")
	case c.state.Signature != nil:
		return c.state.Signature, nil
	case len(request.Survivors) < params.Threshold:
		return nil, fmt.Errorf("the server states that %d clients stayed; it must be %d", len(request.Survivors),
			params.Threshold)
	case !slices.Contains(request.Survivors, c.id):
		return nil, errors.New("the server states that this client dropped out, but it uploaded")
	}

	seen := map[int]bool{}
	for _, id := range slices.Concat(request.Survivors, request.Dropped) {
		if seen[id] {
			return nil, fmt.Errorf("both secrets of client %d are requested, or one twice; together they reveal its "+
				"vector", id)
		}
		if seen[id] = true; !slices.Contains(c.state.Senders, id) {
			return nil, fmt.Errorf("a secret of client %d is requested, which could not upload", id)
		}
	}

	if len(seen) != len(c.state.Senders) {
		return nil, fmt.Errorf("the question is about %d clients; %d could upload", len(seen), len(c.state.Senders))
	}

	s, err := c.who.Sign(c.id, agreed(c.View(), request))
	if err == nil {
		c.state.Question, c.state.Signature = request.Encode(), s
	}

	return s, err
}

// View returns a digest of what this client received before it masked its vector. All clients of a round have the same
// one.
func (c *Client) View() [sha256.Size]byte {
	return viewOf(c.state.Terms, c.roster, c.state.Senders, c.state.Model)
}

// Reveal answers the signed question, once Threshold clients have signed the same one.
func (c *Client) Reveal(signed Signatures) (Shares, error) {
	if c.state.Signature == nil {
		return nil, errOrder
	}

	request, err := DecodeUnmaskRequest(c.state.Question)
	if err != nil {
		return nil, err
	}

	if !c.state.Revealed {
		if err := c.checkSignatures(request, signed); err != nil {
			return nil, err
		}
	}

	out := Shares{}
	for _, id := range request.Survivors {
		out[id] = c.seedShares[id]
	}

	for _, id := range request.Dropped {
		out[id] = c.pairShares[id]
	}

	c.state.Revealed = true
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

	if n < c.state.Terms.Threshold {
		return fmt.Errorf("%d clients signed this client's view of the round; it must be %d", n,
			c.state.Terms.Threshold)
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
	t, v := c.state.Terms, c.View()
	q, _ := DecodeUnmaskRequest(c.state.Question)
	vector := sha256.Sum256(c.state.Masked)
	return Transcript{Round: t.Round, Session: fmt.Sprintf("%x", t.Session), Threshold: t.Threshold,
		Roster: slices.Sorted(maps.Keys(c.roster)), Senders: c.state.Senders, Survivors: q.Survivors,
		View: fmt.Sprintf("%x", v), Model: fmt.Sprintf("%x", c.state.Model), Vector: fmt.Sprintf("%x", vector)}
}
