package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/listen"
	"promptfed/federation/net/protocol"
	"promptfed/runtime/atomicfile"
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
	RunSpec   spec.RunSpec
	Backbones map[string]spec.OwnBackbone // by name; the majority decides about others
	Method    method.Method
	Identity  certs.Identity // of the server; it recognises clients
	// Limit is the largest size of tensors inside a message, in bytes; larger ones are sent in chunks.
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
	OnReply func(o message.Instruction, client int) // after each accepted reply; may be nil
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

// Server is the server's side of a run and implements message.Cohort.
type Server struct {
	set      Settings
	terms    []string // terms of the method's loss
	identity certs.Identity
	listener *listen.Listener
	http     *http.Server
	decoding chan struct{}   // limits how many clients' tensors are in memory at a time
	over     context.Context // ends when the server stops
	stops    []func()

	unknown, watchers *rate.Limiter // budgets of clients that the run does not have, and of the status user

	// the encoded status, and when it was encoded
	statusMu   sync.Mutex
	statusText []byte
	statusAt   time.Time

	mu           sync.Mutex
	seq          int64 // number of the newest instruction
	clients      []clientRecord
	began        bool           // the clients agreed on runSpec
	runSpec      spec.RunSpec   // before that, the terms of the configuration
	disagreement string         // last logged disagreement of clients
	accepted     map[int]string // by client: instruction of its last accepted upload
	safe         map[int]string // likewise, in the last checkpoint
	trained      map[int]string // by client: training instruction that it answered in the current round
	current      *collection
	totals       Totals
	norms        norms
	longest      map[string]float64     // by kind: largest accepted norm, relative to the usual one
	limited      message.LimitedClients // since the last report
	joined       chan struct{}          // somebody joined
}

// Default sizes, in bytes.
const (
	DefaultLimit   = 256 << 10 // of tensors inside a message
	DefaultLargest = 64 << 20  // of all tensors to or from a client
)

// maxDecoding is how many clients' tensors may be in memory as a whole at a time.
const maxDecoding = 4

// Open starts the server of a run, new or resumed.
func Open(set Settings) (*Server, error) {
	if set.Largest <= 0 {
		set.Largest = DefaultLargest
	}
	if set.Limit <= 0 {
		set.Limit = DefaultLimit
	}
	if set.Log == nil {
		set.Log = slog.New(slog.DiscardHandler)
	}
	h := &Server{set: set, terms: method.TermNames(set.Method), clients: make([]clientRecord, set.Clients),
		runSpec: set.RunSpec, decoding: make(chan struct{}, maxDecoding),
		accepted: map[int]string{}, safe: map[int]string{}, trained: map[int]string{}, joined: make(chan struct{}, 1),
		longest: map[string]float64{}}
	for k := range h.clients {
		h.clients[k].budget, h.clients[k].joining = newBudget(), semaphore.NewWeighted(maxJoining)
	}
	h.unknown, h.watchers = newBudget(), newBudget()
	var stop context.CancelFunc
	h.over, stop = context.WithCancel(context.Background())
	h.stops = append(h.stops, stop)
	err := h.prepare()
	if err == nil {
		err = h.listen()
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Close stops the server. Its files stay, so that the run can resume.
func (h *Server) Close() {
	for _, stop := range h.stops {
		stop()
	}
	h.stops = nil
}

// Folders in Settings.Dir.
const (
	membersDir = "members"
	piecesDir  = "pieces"
)

// prepare makes the server's folder, or restores its content.
func (h *Server) prepare() error {
	dir := h.set.Dir
	if dir == "" { // a server that cannot resume
		var err error
		if dir, err = os.MkdirTemp("", "promptfed-server-"); err != nil {
			return err
		}
		h.set.Dir = dir
		h.stops = append(h.stops, func() { os.RemoveAll(dir) })
	}
	members, pieces := filepath.Join(dir, membersDir), filepath.Join(dir, piecesDir)
	err := os.RemoveAll(pieces)
	if !h.set.Resume {
		err = errors.Join(err, os.RemoveAll(members))
	}
	if err = errors.Join(err, os.MkdirAll(members, 0o700), os.MkdirAll(pieces, 0o700)); err != nil {
		return fmt.Errorf("the server's folder: %w", err)
	}
	if h.identity, err = h.set.Identity.WithKey(dir); err != nil {
		return err
	}
	return h.readMembers()
}

func (h *Server) memberPath(name string) string {
	return filepath.Join(h.set.Dir, membersDir, name+".json")
}

func (h *Server) writeMember(name string, v any) error {
	return atomicfile.WritePrivate(h.memberPath(name), atomicfile.JSON(v, ""))
}

// readMembers reads the clients of a resumed run.
func (h *Server) readMembers() error {
	if err := h.readAgreement(); err != nil {
		return err
	}
	for k := range h.clients {
		m := &h.clients[k]
		there, err := atomicfile.ReadJSON(h.memberPath(certs.UserOf(k)), &m.JoinRequest)
		if err != nil {
			return err
		}
		if !there || !m.hasRequest() {
			continue
		}
		key, err := h.identity.VerifierOf(m.Proof, certs.UserOf(k))
		if err != nil {
			h.set.Log.Warn("a client must join again", "client", k, "reason", err)
			m.JoinRequest = protocol.JoinRequest{Proof: m.Proof} // what it took part in stays known
			continue
		}
		m.key = key
	}
	for k := range h.clients { // what all have said decides about each
		m := &h.clients[k]
		if !m.hasRequest() {
			continue
		}
		var err error
		if m.experiment, err = h.examine(m.JoinRequest); err != nil {
			h.set.Log.Warn("what a client said does not match the configuration", "client", k, "reason", err)
			if err := h.leaveOut(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// Signatures verifies the messages that clients signed for each other.
func (h *Server) Signatures() (*certs.Signatures, error) { return h.set.Identity.Signatures("") }
