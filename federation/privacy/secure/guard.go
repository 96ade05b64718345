package secure

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// Guard is the clients' side: of all clients of one process, or of the one client of a Side.
type Guard struct {
	aggregation *Aggregation
	side        Side
	mu          sync.Mutex
	clients     map[int]*client
}

// client is the state of one client and its session of the newest round.
type client struct {
	mu          sync.Mutex
	aggregation *Aggregation
	side        Side
	id          int
	record
	session *secagg.Client // nil before the first
	peers   secagg.Peers
	saved   secagg.Peers // as in KeysFile
	version string       // version of RecordFile
}

// record is the state of a client that survives a restart.
type record struct {
	Version    int                 `json:"version"`
	Run        string              `json:"run"`
	Client     int                 `json:"client"`
	Guarantees Guarantees          `json:"facts"` // when the client first joined
	Sums       int                 `json:"sums"`  // sums that the client revealed its shares for
	Fewest     int                 `json:"fewest"`
	Most       int                 `json:"most"` // fewest and most clients in such a sum
	Refused    int                 `json:"refused"`
	Session    *secagg.ClientState `json:"session,omitempty"` // the newest
}

// Guard returns the clients' side in one process, which keeps nothing on disk.
func (l *Aggregation) Guard() *Guard {
	return &Guard{aggregation: l, side: inProcess(), clients: map[int]*client{}}
}

// GuardAt returns the side of one client whose server is on another machine. It refuses the folder of a client that
// joined under other terms.
func (l *Aggregation) GuardAt(id int, side Side) (*Guard, error) {
	own := &client{aggregation: l, side: side, id: id, peers: secagg.Peers{}}
	there, err := side.read(RecordFile, &own.record)
	if err == nil {
		err = checkVersion(side.Dir, there, own.record.Version)
	}

	if err != nil {
		return nil, err
	}

	if _, err := side.read(KeysFile, &own.peers); err != nil {
		return nil, err
	}

	own.saved, own.version = maps.Clone(own.peers), side.version(RecordFile)
	if now := l.Guarantees(); !there { // the first session writes it
		own.record = record{Version: version, Run: side.Run, Client: id, Guarantees: now}
	} else if own.Run != side.Run || own.Client != id {
		err = fmt.Errorf("%s belongs to another client, or to client %d of another run, under secure aggregation; "+
			"use another --state", side.Dir, own.Client)
	} else if own.Guarantees != now {
		err = fmt.Errorf("this client took part in %s; the server now has %s; if that is intended, use another "+
			"--state", own.Guarantees, now)
	}

	if err != nil {
		return nil, err
	}

	if m := own.Session; m != nil {
		if own.session, err = secagg.Restore(id, *m, side.Who, own.peers, rand.Reader); err != nil {
			return nil, fmt.Errorf("%s: %w", side.Dir, err)
		}
	}

	return &Guard{aggregation: l, side: side, clients: map[int]*client{id: own}}, nil
}

// client returns the state of a client.
func (g *Guard) client(id int) (*client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.clients[id]
	if c == nil && g.side.Dir != "" {
		return nil, fmt.Errorf("client %d is not in this process", id)
	}

	if c == nil {
		c = &client{aggregation: g.aggregation, side: g.side, id: id, peers: secagg.Peers{}}
		g.clients[id] = c
	}

	return c, nil
}

// save writes the client's state. The caller must save before it sends anything that depends on the state.
func (c *client) save() error {
	if c.side.version(RecordFile) != c.version {
		return fmt.Errorf("another process wrote %s in %s; run a client in one process only, or it could be in two "+
			"sessions", RecordFile, c.side.Dir)
	}

	if !maps.EqualFunc(c.peers, c.saved, bytes.Equal) {
		if err := c.side.write(KeysFile, c.peers); err != nil {
			return err
		}
		c.saved = maps.Clone(c.peers)
	}

	if c.session != nil {
		m := c.session.State()
		c.record.Session = &m
	}

	err := c.side.write(RecordFile, c.record)
	c.version = c.side.version(RecordFile)
	return err
}

// Summary describes the sums that a client took part in.
type Summary struct {
	Sums, Fewest, Most, Refused int
	Keys                        map[int][]byte // fingerprints by client, of others and its own
}

// Summary returns the summary of one client.
func (g *Guard) Summary(id int) Summary {
	c, err := g.client(id)
	if err != nil {
		return Summary{}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	s := Summary{c.Sums, c.Fewest, c.Most, c.Refused, map[int][]byte{}}
	for k, proof := range c.peers {
		s.Keys[k] = secagg.Fingerprint(proof)
	}

	if own, err := c.side.Who.Proof(id); err == nil {
		s.Keys[id] = secagg.Fingerprint(own)
	}

	return s
}

// answers holds a client's part of the steps other than training, by their names.
var answers = map[string]func(*client, message.Instruction) (tensor.Map, error){
	keysStep:   answer(sessionName, keysName, decodeParams, (*client).begin),
	sharesStep: answer(rosterName, sharesName, secagg.DecodeRoster, (*client).share),
	checkStep: answer(inboxName, complaintsName, secagg.DecodeEncryptedShares,
		func(c *client, _ message.Instruction, in secagg.EncryptedShares) (secagg.Complaints, error) {
			return c.session.Check(in)
		}),
	agreeStep: answer(questionName, agreedName, secagg.DecodeUnmaskRequest,
		func(c *client, _ message.Instruction, q secagg.UnmaskRequest) (signature, error) {
			return c.session.Agree(q)
		}),
	revealStep: answer(signedName, revealName, secagg.DecodeSignatures, (*client).reveal),
}

// signature is a client's message in agreeStep.
type signature []byte

func (s signature) Encode() []byte { return s }

// answer returns a client's part of a step: it decodes the server's message and encodes the client's.
func answer[Q any, A interface{ Encode() []byte }](down, up string, decode func([]byte) (Q, error),
	do func(*client, message.Instruction, Q) (A, error)) func(*client, message.Instruction) (tensor.Map, error) {
	return func(c *client, instruction message.Instruction) (tensor.Map, error) {
		q, err := read(instruction.PerClient[c.id], down, decode)
		if err != nil {
			return nil, err
		}
		a, err := do(c, instruction, q)
		if err != nil {
			return nil, err
		}
		return pack(up, a.Encode()), nil
	}
}

// Answer executes the steps other than training.
func (g *Guard) Answer(id int, instruction message.Instruction) (answer tensor.Map, ok bool, err error) {
	step, ok := answers[instruction.Statistic]
	if !ok {
		return nil, false, nil
	}

	client, err := g.client(id)
	if err != nil {
		return nil, true, err
	}

	client.mu.Lock()
	defer client.mu.Unlock()
	if instruction.Statistic != keysStep {
		err = client.checkSession(instruction)
	}

	if err == nil {
		answer, err = step(client, instruction)
	}

	if err != nil {
		return nil, true, client.recordRefusal(instruction, fmt.Errorf("round %d, client %d, %s: %w",
			instruction.Round+1, id, instruction.Statistic, err))
	}

	if err := client.save(); err != nil {
		return nil, true, err
	}

	return answer, true, nil
}

// checkSession reports an instruction for another session than the client's.
func (c *client) checkSession(instruction message.Instruction) error {
	if c.session == nil {
		return errors.New("this client has no session of this round; it joined later, or lost its state")
	}
	if round := c.session.Terms().Round; round != instruction.Round {
		return fmt.Errorf("the session belongs to round %d", round+1)
	}
	return nil
}

// maxListed is the largest number of refusals in the log; further ones are only counted.
const maxListed = 1000

// recordRefusal counts and logs a refused instruction.
func (c *client) recordRefusal(instruction message.Instruction, why error) error {
	if c.Refused++; c.Refused <= maxListed {
		if err := c.side.appendLog(struct {
			Round   int    `json:"round"`
			Refused string `json:"refused"`
		}{instruction.Round, why.Error()}); err != nil {
			return fmt.Errorf("%w; %w", why, err)
		}
	}

	if err := c.save(); err != nil {
		return fmt.Errorf("%w; %w", why, err)
	}

	return why
}

// begin starts the session that an instruction names, or repeats its answer. Each round has one session.
func (c *client) begin(instruction message.Instruction, params secagg.Params) (joining secagg.Joining, err error) {
	params.Round, params.Clients, params.Ring, params.Context = instruction.Round, c.aggregation.clients,
		c.aggregation.ring, c.side.context()
	if instruction.Total != c.aggregation.clients {
		return joining, fmt.Errorf("the server states %d clients; this client's configuration has %d",
			instruction.Total, c.aggregation.clients)
	}

	least, groups := c.aggregation.threshold(), c.aggregation.config.Least
	if params.Threshold != least && (groups == 0 || params.Threshold < groups) {
		return joining, fmt.Errorf("the server's threshold is %d; this client's configuration requires sums of %d of "+
			"%d clients", params.Threshold, c.aggregation.Guarantees().Least, c.aggregation.round)
	}

	switch s := c.session; {
	case s == nil || params.Round > s.Terms().Round:
		if s, err = secagg.NewClient(c.id, params, c.side.Who, c.peers, rand.Reader); err != nil {
			return joining, err
		}
		c.session = s
	case params.Round < s.Terms().Round:
		return joining, fmt.Errorf("this client was already in round %d; rounds do not go back", s.Terms().Round+1)
	case s.Terms() != params:
		return joining, errors.New("a second session of the same round is refused; the sums of two sessions could " +
			"reveal one client's vector")
	}

	return c.session.Advertise()
}

func (c *client) share(_ message.Instruction, roster secagg.Roster) (secagg.EncryptedShares, error) {
	if len(roster) > c.aggregation.round {
		return nil, fmt.Errorf("the roster has %d clients; in this client's configuration a round has %d", len(roster),
			c.aggregation.round)
	}

	if t := c.session.Terms().Threshold; t < c.aggregation.thresholdOf(len(roster)) {
		return nil, fmt.Errorf("the roster has %d clients, and the session's threshold is %d; this client's "+
			"configuration requires %d", len(roster), t, c.aggregation.thresholdOf(len(roster)))
	}

	return c.session.Share(roster)
}

func (c *client) reveal(_ message.Instruction, signed secagg.Signatures) (secagg.Shares, error) {
	before := c.session.State().Revealed
	shares, err := c.session.Reveal(signed)
	if err != nil || before {
		return shares, err
	}

	seen := c.session.Transcript()
	n := len(seen.Survivors)
	if c.Sums++; c.Fewest == 0 || n < c.Fewest {
		c.Fewest = n
	}

	c.Most = max(c.Most, n)
	return shares, c.side.appendLog(seen)
}

// Protect masks an upload.
func (g *Guard) Protect(id int, instruction message.Instruction, up *method.Upload, stats *message.Stats) error {
	client, err := g.client(id)
	if err != nil {
		return err
	}

	client.mu.Lock()
	defer client.mu.Unlock()
	masked, err := client.mask(instruction, *up, stats.Loss)
	if err != nil {
		return client.recordRefusal(instruction, err)
	}

	if err := client.save(); err != nil {
		return err
	}

	*up, *stats = method.Upload{Client: id, N: 1, Shared: tensor.Map{}, Extra: pack(maskedName, masked)},
		message.Stats{}
	return nil
}

func (c *client) mask(instruction message.Instruction, up method.Upload, loss float64) ([]byte, error) {
	if err := c.checkSession(instruction); err != nil {
		return nil, err
	}

	senders, err := read(instruction.PerClient[c.id], sendersName, secagg.DecodeClients)
	if err != nil {
		return nil, err
	}

	if own := message.WithoutGuardPart(instruction.PerClient[c.id]); len(own) > 0 &&
		c.aggregation.config.Statistics != "clear" {
		return nil, fmt.Errorf("the instruction has %s for this client only; all clients must train from the same "+
			"parameters", own.Names()[0])
	}

	model, err := modelDigest(instruction)
	if err != nil {
		return nil, err
	}

	v, err := c.aggregation.vector(instruction.Shared, up, loss)
	if err != nil {
		return nil, err
	}

	ring := c.session.Terms().Ring
	y, err := c.session.Mask(senders, model, convert.Slice(v, ring.Element))
	return ring.Encode(y), err
}

// encodeParams encodes the parameters in a session's first instruction: its name, the threshold and the vectors'
// length.
func encodeParams(t secagg.Params) []byte {
	b := binary.LittleEndian.AppendUint32(t.Session[:], uint32(t.Threshold))
	return binary.LittleEndian.AppendUint64(b, uint64(t.Length))
}

// decodeParams decodes the result of encodeParams; the other parameters follow from the configuration.
func decodeParams(b []byte) (params secagg.Params, err error) {
	if len(b) != secagg.SessionSize+12 {
		return params, fmt.Errorf("the session's settings have the wrong size, %d bytes", len(b))
	}

	copy(params.Session[:], b)
	params.Threshold = int(binary.LittleEndian.Uint32(b[secagg.SessionSize:]))
	n := binary.LittleEndian.Uint64(b[secagg.SessionSize+4:])
	if n > 1<<40 {
		return params, fmt.Errorf("the session's vectors have the wrong size, %d numbers", n)
	}

	params.Length = int(n)
	return params, nil
}
