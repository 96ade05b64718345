package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/listen"
	"promptfed/federation/net/wire"
	"promptfed/runtime/optim"
)

// Settings configure the server of a run.
type Settings struct {
	Name     string        // of the experiment, for the status
	Listen   string        // HOST:PORT; port 0 for any free port
	Token    string        // secret that clients must have; empty for none
	ID       string        // identity of this run, from NewID; the same when it resumes
	Dir      string        // folder of the server's key, its clients, and tensors in transfer
	Resume   bool          // keep the clients of this run
	Clients  int           // number of clients, 1 to certs.MaxClients
	Deadline time.Duration // of every instruction; 0 for none
	Quorum   float64       // share of the clients asked that must answer, in (0,1]; see QuorumSize
	// KeepQuorum means that the operator asked for the quorum, which silence does not lower. Otherwise Least is the
	// share of the clients asked below which silence does not lower it; 0 for none.
	KeepQuorum bool
	Least      float64
	Config     []byte // the clients' configuration
	// InsecureDP tells clients that the noise of differential privacy comes from the run's seed.
	InsecureDP bool
	Facts      json.RawMessage // the experiment and the protection of clients, for the status
	// RunSpec holds the terms that clients must agree to. Where it has no classes, template or evaluation sets, the
	// majority of the clients that joined before the start decides.
	RunSpec spec.RunSpec
	// Agreed checks the terms that the clients of a resumed run agreed on, before the server listens; may be nil.
	Agreed    func(terms spec.RunSpec) error
	Backbones map[string]spec.OwnBackbone // by name; the majority decides about others
	Method    method.Method
	Identity  certs.Identity // of the server; it recognises clients
	// Limit is the largest size of tensors inside a message, in bytes; larger ones are sent in parts.
	Limit int
	// Largest is the largest size of a client's tensors, in bytes.
	Largest int
	// MaxNorm is the largest Euclidean norm of an update of the shared parameters; 0 for a limit from all clients'
	// uploads, below 0 for none.
	MaxNorm float64
	// MaxExamples is the largest weight of an upload, in examples; 0 for a limit from all clients' numbers of examples,
	// below 0 for none.
	MaxExamples int
	// Rate is the learning rate by round; nil for a constant one.
	Rate    optim.Rate
	Masked  bool // uploads are masked by secure aggregation, so the server cannot check them
	Privacy Privacy
	Log     *slog.Logger
	OnReply func(instruction message.Instruction, client int) // after each accepted reply; may be nil
}

// Privacy holds the requirements of differential privacy beyond the method's own work.
type Privacy struct {
	// Clients means client-level privacy: no other client's data decides whether a reply counts, and no norm of an
	// upload is recorded.
	Clients bool
	// Sample means that the clients that train are secret, and Size that their number is too.
	Sample, Size bool
}

// asksExamples reports whether clients state their number of training examples, which the server may not know under
// secure aggregation and client-level privacy.
func (s Settings) asksExamples() bool { return !s.Masked && !s.Privacy.Clients }

// Server is the server's side of a run and implements message.Cohort. Each part of its state has its own lock.
type Server struct {
	set      Settings
	terms    []string // terms of the method's loss
	identity certs.Identity
	listener *listen.Listener
	http     *http.Server
	over     context.Context // ends when the server stops
	stops    []func()

	callers           []*caller     // by client
	unknown, watchers *caller       // clients that the run does not have together, and the status user
	decoding          chan struct{} // limits how many clients' tensors are in memory at a time

	members *members
	mail    *mailboxes
	counts  *counters
	current atomic.Pointer[collection] // nil between instructions
	round   atomic.Int64               // of the newest instruction
	status  shownStatus

	troubles rate.Sometimes // logs errors of the server's own files

	// of the goroutine that runs the experiment
	disagreement string             // last logged disagreement of clients
	norms        norms              // of the last rounds
	longest      map[string]float64 // by kind: largest accepted norm, relative to the usual one
}

// DefaultLimit is the default of Settings.Limit, in bytes.
const DefaultLimit = 256 << 10

// maxDecoding is how many clients' tensors may be in memory as a whole at a time.
const maxDecoding = 4

// Open starts the server of a run, new or resumed.
func Open(set Settings) (*Server, error) {
	server := newServer(set)
	err := server.prepare()
	if err == nil {
		err = server.listen()
	}

	if err != nil {
		server.Close()
		return nil, err
	}

	return server, nil
}

// newServer returns a server that has no folder and does not listen.
func newServer(set Settings) *Server {
	if set.Largest <= 0 {
		set.Largest = wire.DefaultLargest
	}

	if set.Limit <= 0 {
		set.Limit = DefaultLimit
	}

	if set.Log == nil {
		set.Log = slog.New(slog.DiscardHandler)
	}

	over, stop := context.WithCancelCause(context.Background())
	server := &Server{set: set, terms: method.TermNames(set.Method), over: over, callers: make([]*caller, set.Clients),
		unknown: newCaller(), watchers: newCaller(), decoding: make(chan struct{}, maxDecoding),
		troubles: rate.Sometimes{Interval: 10 * time.Second},
		members:  newMembers(set.Clients, set.RunSpec), mail: newMailboxes(set.Clients),
		counts: &counters{now: counts{clients: make([]tally, set.Clients)}}, longest: map[string]float64{}}

	for k := range server.callers {
		server.callers[k] = newCaller()
	}

	server.stops = append(server.stops, func() {
		stop(connect.NewError(connect.CodeUnavailable, errors.New("the server stops")))
	})
	return server
}

// Close stops the server. Its files stay, so that the run can resume.
func (h *Server) Close() {
	for _, stop := range h.stops {
		stop()
	}
	h.stops = nil
}

// Signatures verifies the messages that clients signed for each other.
func (h *Server) Signatures() (*certs.Signatures, error) { return h.set.Identity.Signatures("") }
