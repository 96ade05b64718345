package secure

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/privacy/secagg"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// cohort turns an instruction to train into the steps of a session, or of one session for each group of clients.
type cohort struct {
	message.Cohort
	aggregation *Aggregation
	side        Side
	saved       progress
}

// progress is the state of the server that survives a restart.
type progress struct {
	Version  int          `json:"version"`
	Run      string       `json:"run"`
	Sessions []saved      `json:"sessions,omitempty"` // sessions of the newest round
	Strict   bool         `json:"strict"`             // a dealer lied
	Invalid  invalidSums  `json:"invalid,omitzero"`
	Peers    secagg.Peers `json:"peers"`
}

// saved is the state of one session.
type saved struct {
	Clients  []int           `json:"clients"` // clients asked
	Progress secagg.Progress `json:"progress"`
}

// version is the version of the files of both sides.
const version = 2

// checkVersion refuses a file with another version.
func checkVersion(dir string, there bool, found int) error {
	if there && found != version {
		return fmt.Errorf("%s/%s has version %d, this program reads version %d; finish the run with the release that "+
			"began it, or start another run", dir, RecordFile, found, version)
	}
	return nil
}

// Wrap returns a cohort with the server's side of secure aggregation, for clients in the same process.
func (l *Aggregation) Wrap(c message.Cohort) message.Cohort {
	return &cohort{Cohort: c, aggregation: l, side: inProcess(),
		saved: progress{Version: version, Peers: secagg.Peers{}}}
}

// WrapAt is Wrap for clients on other machines. A round that was interrupted continues in its sessions, since its
// clients accept no others: with the results of finished steps, and with the sums if they exist.
func (l *Aggregation) WrapAt(side Side) (func(message.Cohort) message.Cohort, error) {
	old := progress{}
	there, err := side.read(RecordFile, &old)
	if err == nil {
		err = checkVersion(side.Dir, there, old.Version)
	}

	if err != nil {
		return nil, err
	}

	if old.Run != side.Run || old.Peers == nil {
		old = progress{Version: version, Run: side.Run, Peers: secagg.Peers{}}
	}

	return func(c message.Cohort) message.Cohort {
		return &cohort{Cohort: c, aggregation: l, side: side, saved: old}
	}, nil
}

// round holds the sessions of one round.
type round struct {
	*cohort
	order    message.Instruction
	model    [sha256.Size]byte
	sessions []*session
	out      message.Reply
}

// session is one session of a round.
type session struct {
	clients []int
	terms   secagg.Params
	server  *secagg.Server
	err     error                          // why there is no sum
	down    []byte                         // message to all clients in the next step
	inboxes map[int]secagg.EncryptedShares // message to each client in the step of complaints
	took    []int                          // clients that answered the last step
}

// Traits says that the server sees only sums.
func (c *cohort) Traits() message.Traits {
	t := c.Cohort.Traits()
	t.Summed = true
	return t
}

// Run returns one reply for all clients to an instruction to train, and passes other instructions on. A round without a
// valid sum is skipped; no message of a client makes Run fail.
func (c *cohort) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	if instruction.Kind != message.Train {
		return c.Cohort.Run(ctx, instruction)
	}

	round := &round{cohort: c, order: instruction, out: message.Reply{Client: method.AggregatedClient}}
	err := round.open()
	if err == nil {
		err = round.run(ctx)
	}

	if err == nil {
		err = round.finish()
	}

	if err != nil {
		return nil, fmt.Errorf("round %d: %w", instruction.Round+1, err)
	}

	return []message.Reply{round.out}, nil
}

// open starts the round's sessions, or continues them.
func (r *round) open() (err error) {
	if r.model, err = modelDigest(r.order); err != nil {
		return err
	}

	if old := r.saved.Sessions; len(old) > 0 && old[0].Progress.Terms.Round == r.order.Round {
		for _, o := range old {
			s := &session{clients: o.Clients, terms: r.terms(o.Progress.Terms.Threshold, o.Progress.Terms.Session)}
			if s.terms != o.Progress.Terms {
				s.err = errors.New("secure aggregation: the round began with other settings; its clients keep " +
					"those")
			} else if s.server, s.err = secagg.Resume(o.Progress, r.model, r.side.Who, r.saved.Peers); s.err != nil {
				s.err = fmt.Errorf("secure aggregation: %s/%s: %w", r.side.Dir, RecordFile, s.err)
			} else {
				s.server.Strict = r.saved.Strict
			}
			r.sessions = append(r.sessions, s)
		}

		return nil
	}

	for _, clients := range r.groups() {
		threshold := r.aggregation.threshold()
		if r.saved.Invalid.grouped(r.order.Round) {
			threshold = r.aggregation.groupThreshold(len(clients))
		}
		var name secagg.Session
		rand.Read(name[:])
		s := &session{clients: clients, terms: r.terms(threshold, name)}
		if s.server, err = secagg.NewServer(s.terms, r.side.Who, r.saved.Peers); err != nil {
			return err
		}
		s.server.Strict = r.saved.Strict
		r.sessions = append(r.sessions, s)
	}

	return r.save()
}

func (r *round) terms(threshold int, name secagg.Session) secagg.Params {
	return secagg.Params{Session: name, Round: r.order.Round, Clients: r.aggregation.clients, Threshold: threshold,
		Length: r.aggregation.length(r.order.Shared), Ring: r.aggregation.ring, Context: r.side.context()}
}

// save writes the finished steps. After that, clients must not be asked anything different in this round.
func (r *round) save() error {
	r.saved.Sessions = nil
	if r.side.Dir == "" {
		return nil
	}

	for _, s := range r.sessions {
		if s.server != nil {
			r.saved.Sessions = append(r.saved.Sessions, saved{s.clients, s.server.Progress()})
		}
	}

	return r.side.write(RecordFile, r.saved)
}

// step is one exchange of messages with the clients of all sessions.
type step struct {
	name, down, up string
	most           func(clients int) int                             // largest size of an answer but of trainStep
	send           func(s *session, client int) []byte               // message to a client
	take           func(s *session, client int, answer []byte) error // checks an answer
	end            func(s *session) error                            // reports why there is no sum
}

// trainAt is the place of trainStep among the steps.
const trainAt = 3

// asked returns the clients of a session that a step asks; none if the step is over. The clients of a session that has
// its sum train again, too: their training counts.
func (s *session) asked(step int) []int {
	switch {
	case step > trainAt:
		return s.took
	case step < trainAt && s.server.Finished() > step:
		return nil
	case step == 0:
		return s.clients
	}

	return s.server.Clients()
}

func (r *round) steps() []step {
	down := func(s *session, _ int) []byte { return s.down }
	return []step{
		{keysStep, sessionName, keysName, secagg.MaxJoiningSize,
			func(s *session, _ int) []byte { return encodeParams(s.terms) },
			decoded(secagg.DecodeJoining, (*secagg.Server).Join),
			func(s *session) error {
				roster, err := s.server.Roster()
				s.down = roster.Encode()
				return err
			}},
		{sharesStep, rosterName, sharesName, secagg.MaxEncryptedSharesSize, down,
			decoded(secagg.DecodeEncryptedShares, (*secagg.Server).Deal),
			func(s *session) (err error) {
				s.inboxes, err = s.server.Inboxes()
				return err
			}},
		{checkStep, inboxName, complaintsName, secagg.MaxComplaintsSize,
			func(s *session, id int) []byte { return s.inboxes[id].Encode() },
			decoded(secagg.DecodeComplaints, (*secagg.Server).Check),
			func(s *session) error {
				_, liars, err := s.server.Exclude(r.model)
				r.refuse(liars)
				return err
			}},
		{trainStep, sendersName, maskedName, nil,
			func(s *session, _ int) []byte { return secagg.EncodeClients(s.server.Senders()) },
			func(s *session, id int, b []byte) error {
				y, err := s.terms.Ring.Decode(b)
				if err != nil || s.server.Finished() > trainAt { // keep the sum
					return err
				}
				return s.server.Add(id, y)
			},
			func(s *session) error {
				q, err := s.server.Unmask()
				s.down, s.took = q.Encode(), q.Survivors
				return err
			}},
		{agreeStep, questionName, agreedName, func(int) int { return secagg.MaxSignatureSize }, down,
			func(s *session, id int, b []byte) error { return s.server.Agree(id, b) },
			func(s *session) error {
				signed, err := s.server.Signatures()
				s.down = signed.Encode()
				return err
			}},
		{revealStep, signedName, revealName, secagg.MaxSharesSize, down,
			decoded(secagg.DecodeShares, (*secagg.Server).Reveal),
			func(*session) error { return nil }},
	}
}

// decoded returns a function that decodes a client's message and passes it to the server's session.
func decoded[T any](decode func([]byte) (T, error), take func(*secagg.Server, int, T) error) func(*session, int,
	[]byte) error {
	return func(s *session, id int, b []byte) error {
		v, err := decode(b)
		if err != nil {
			return err
		}
		return take(s.server, id, v)
	}
}

func (r *round) run(ctx context.Context) error {
	for i, x := range r.steps() {
		if err := r.exchange(ctx, i, x); err != nil {
			return err
		}
		for _, s := range r.sessions {
			if s.err == nil {
				s.err = x.end(s)
			}
		}
		if i > trainAt {
			continue // these steps have no saved state
		}
		if err := r.save(); err != nil {
			return err
		}
	}

	return nil
}

// exchange sends a step's messages to the clients of all sessions and checks their answers. An invalid answer counts as
// none.
func (r *round) exchange(ctx context.Context, at int, step step) error {
	instruction, size := r.order, 0
	if at == trainAt { // one vector of known size in place of the upload
		terms := r.sessions[0].terms // all sessions of a round have vectors of the same size
		size = packed(terms.Length * terms.Ring.Width)
	} else {
		instruction = message.Instruction{Kind: message.Compute, Round: r.order.Round, Statistic: step.name,
			Total: r.order.Total, Shared: tensor.Map{}, Broadcast: tensor.Map{}}
		size = -packed(step.most(r.aggregation.clients))
	}

	instruction.Guarded = tensor.Specs{{Name: step.up, Int: true, Shape: []int{size}}}
	instruction.Clients, instruction.PerClient = nil, map[int]tensor.Map{}
	sessions := map[int]*session{}
	for _, s := range r.sessions {
		if s.err != nil {
			continue
		}
		asked := s.asked(at)
		s.took = nil
		var last []byte
		var content tensor.Map
		for _, id := range asked {
			// what is the same for all, such as a large roster, is in memory once
			if text := step.send(s, id); content == nil || !bytes.Equal(text, last) {
				last, content = text, pack(step.down, text)
			}

			instruction.Clients, sessions[id] = append(instruction.Clients, id), s
			instruction.PerClient[id] = maps.Clone(content)
			if at == trainAt {
				maps.Copy(instruction.PerClient[id], r.order.PerClient[id])
			}
		}
	}

	if len(instruction.Clients) == 0 {
		return nil
	}

	slices.Sort(instruction.Clients)
	replies, err := r.Cohort.Run(ctx, instruction)
	for _, reply := range replies {
		r.out.Up, r.out.Down = r.out.Up+reply.Up, r.out.Down+reply.Down
		s := sessions[reply.Client]
		b, err := unpack(reply.Upload.Extra, step.up)
		if err == nil {
			err = step.take(s, reply.Client, b)
		}
		if err != nil {
			r.refuse(map[int]error{reply.Client: err})
			continue
		}
		s.took = append(s.took, reply.Client)
	}

	return err
}

// refuse records the clients whose messages are refused, and why.
func (r *round) refuse(liars map[int]error) {
	for _, id := range slices.Sorted(maps.Keys(liars)) {
		r.out.Refused = append(r.out.Refused, message.Refusal{Client: id, Reason: "secure aggregation: " +
			liars[id].Error()})
	}
}

// finish builds the reply from the sums of the sessions. A client can send any vector, and only the sum is visible: a
// sum that no valid vectors have is not used, and no client is named.
func (r *round) finish() error {
	var total []int64
	var valid []int // clients of sessions with a valid sum
	groups, strict, invalid := 0, r.saved.Strict, false
	for _, session := range r.sessions {
		sum, survivors, err := r.sum(session)
		r.saved.Strict = r.saved.Strict || errors.Is(err, secagg.ErrDealers)
		if err == nil {
			err = r.aggregation.checkBounds(r.order.Shared, sum, len(survivors), r.side.MaxNorm)
			invalid = invalid || err != nil
		}

		if err != nil {
			r.out.Warnings = append(r.out.Warnings, fmt.Sprintf("round %d: %v", r.order.Round+1, err))
			continue
		}

		groups, valid = groups+1, append(valid, session.clients...)
		r.out.Sum = append(r.out.Sum, survivors...)
		if total == nil {
			total = make([]int64, len(sum))
		}

		for i, v := range sum {
			total[i] += v
		}
	}

	r.out.Notes = map[string]float64{"secagg_refused": float64(len(r.out.Refused))}
	if len(r.sessions) > 1 {
		r.out.Notes["secagg_groups"], r.out.Notes["secagg_groups_valid"] = float64(len(r.sessions)), float64(groups)
	}

	if r.aggregation.config.Least > 0 {
		before := r.saved.Invalid.Last
		if text := r.saved.Invalid.note(r.order, valid, invalid); text != "" {
			r.out.Warnings = append(r.out.Warnings, text)
		}
		invalid = invalid || before > 0
	}

	if invalid || r.saved.Strict != strict { // state for the next rounds
		if err := r.save(); err != nil {
			return err
		}
	}

	if total == nil {
		r.out.Skipped = true
		return nil
	}

	slices.Sort(r.out.Sum)
	var clipped float64
	r.out.Upload, r.out.Stats.Loss, clipped = r.aggregation.mean(r.order.Shared, total, len(r.out.Sum))
	r.out.Notes["secagg_clipped"] = clipped
	if clipped > warnClipped {
		r.out.Warnings = append(r.out.Warnings, fmt.Sprintf("secure aggregation clipped %.3g %% of the numbers that "+
			"clients uploaded, which changes the mean; raise secure_aggregation.clip (%v) or extra_clip (%v)",
			100*clipped, r.aggregation.config.Clip, r.aggregation.config.ExtraClip))
	}

	return nil
}

// sum returns the sum of one session and the clients in it.
func (r *round) sum(s *session) (signed []int64, survivors []int, err error) {
	if s.err != nil {
		return nil, nil, s.err
	}

	sum, survivors, liars, err := s.server.Sum()
	r.refuse(liars)
	return convert.Slice(sum, s.terms.Ring.Signed), survivors, err
}

// warnClipped is the share of clipped numbers above which a round has a warning.
const warnClipped = 1e-4
