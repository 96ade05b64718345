package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/optim"
)

// Settings say how a server goes about a run.
type Settings struct {
	Name     string        // of the run, in subjects
	ID       string        // of this run, as NewID gives; the same when it goes on
	Dir      string        // of what the server keeps: its key, the members, and tensors on their way
	Resume   bool          // take over the members of this run
	Clients  int           // how many there are
	Deadline time.Duration // of every order; 0 for none
	Quorum   float64       // share of the clients asked that must answer, in (0,1]; see Need
	Config   []byte        // that clients get
	// InsecureDP tells clients that the noise of differential privacy comes from the run's seed.
	InsecureDP bool
	Facts      json.RawMessage // what the status shows of the experiment and of what protects clients
	// RunSpec is what clients must agree to; the majority of those that joined before the start decides about classes,
	// template and evaluation sets where it has none.
	RunSpec   spec.RunSpec
	Backbones map[string]Backbone // by name; a majority decides about others
	Method    method.Method
	Identity  certs.Identity // by which orders are signed and clients known
	// Limit is the size of the tensors, in bytes, from which on they travel in pieces instead of in the message.
	Limit int
	// Largest is the size of the largest tensors that are taken from a client, in bytes.
	Largest int
	// MaxNorm refuses uploads that moved the shared parameters farther than this, by the Euclidean norm; 0 for a bound
	// that comes of what all clients upload, below 0 for none.
	MaxNorm float64
	// MaxExamples is the weight that an upload has at most, in examples; 0 for one that comes of what all clients say
	// to have, below 0 for none.
	MaxExamples int
	// Rate is the learning rate by round; nil for a constant one.
	Rate    optim.Rate
	Masked  bool // uploads are behind a guard, as of secure aggregation; only what opens them can check what is in them
	Privacy Privacy
	Log     *slog.Logger
	OnReply func(o message.Instruction, client int) // after each reply that counts; may be nil
}

// Privacy is what differential privacy asks of a server, beyond what the method does.
type Privacy struct {
	// Clients tells that the method hides single clients: whether a reply counts depends on no other client's data, and
	// no length of what a client sent is written down.
	Clients bool
	// Sample tells that nobody may learn which clients train, and Size that nobody may learn how many.
	Sample, Size bool
}

// asksExamples tells whether clients say how many examples they train on: behind a guard, and where single clients are
// hidden, no server may know.
func (s Settings) asksExamples() bool { return !s.Masked && !s.Privacy.Clients }

// Server is the server's side of a run: a message.Remote.
type Server struct {
	*exchange.Host
	set   Settings
	terms []string // of the method's loss
	subjects.Names
	sessions []*exchange.Session // by client

	// guarded by Host.Mu
	clients  []clientRecord
	began    bool           // the clients agreed on runSpec
	runSpec  spec.RunSpec   // before that, what the configuration fixes
	tie      string         // how clients differ, as it was logged last
	accepted map[int]string // order whose upload of a client counts last
	safe     map[int]string // likewise, in the last checkpoint
	trained  map[int]string // by client: the training order it answered in the round that is being run
	current  *collection
	norms    norms
	longest  map[string]float64 // by kind of norm: that of what was taken, in what was usual
	limited  message.Limited    // since Limited was called
	joined   chan struct{}      // somebody joined
}

// Open starts to answer the clients of a run, which may be one that goes on.
func Open(ctx context.Context, nc *nats.Conn, set Settings) (*Server, error) {
	if err := subjects.CheckName(set.Name); err != nil {
		return nil, err
	}
	if set.Clients < 1 || set.Clients > subjects.MaxClient || !(set.Quorum > 0 && set.Quorum <= 1) || set.Deadline < 0 {
		return nil, fmt.Errorf("%d clients, quorum %v, deadline %v: at least 1 client, a quorum above 0 and at most "+
			"1, and a deadline of at least 0 are needed", set.Clients, set.Quorum, set.Deadline)
	}
	if set.Largest <= 0 {
		set.Largest = exchange.DefaultLargest
	}
	if set.Log == nil {
		set.Log = slog.New(slog.DiscardHandler)
	}
	h := &Server{set: set, terms: method.TermNames(set.Method),
		Names: subjects.Names(set.Name), clients: make([]clientRecord, set.Clients),
		runSpec: set.RunSpec, Host: exchange.NewHost(nc, set.ID, set.Limit, set.Largest, "", set.Log),
		accepted: map[int]string{}, safe: map[int]string{}, trained: map[int]string{}, joined: make(chan struct{}, 1),
		longest: map[string]float64{}}
	if other, err := exchange.Responds(ctx, nc, h.StatusRequest(), h.ToStatus()); other || err != nil {
		return nil, errors.Join(err, fmt.Errorf("another server runs %q on this NATS server; stop it, or choose "+
			"another --run", set.Name))
	}
	if err := h.prepare(); err != nil {
		return nil, err
	}
	return h, h.listen()
}

// Folders of Settings.Dir.
const (
	membersDir = "members"
	piecesDir  = "pieces"
)

// prepare makes the server's folder, or takes over what is in it.
func (h *Server) prepare() error {
	dir := h.set.Dir
	if dir == "" { // a server that nobody goes on with
		var err error
		if dir, err = os.MkdirTemp("", "promptfed-server-"); err != nil {
			return err
		}
		h.set.Dir = dir
		h.OnStop(func() { os.RemoveAll(dir) })
	}
	for _, d := range []string{dir, filepath.Join(dir, membersDir), filepath.Join(dir, piecesDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("the server's folder: %w", err)
		}
	}
	err := clearDir(filepath.Join(dir, piecesDir))
	if err == nil && !h.set.Resume {
		err = clearDir(filepath.Join(dir, membersDir))
	}
	if err != nil {
		return fmt.Errorf("the server's folder: %w", err)
	}
	if err = h.UseKey(h.set.Identity, dir); err != nil {
		return err
	}
	h.Outbox.Dir = filepath.Join(dir, piecesDir)
	return h.readMembers()
}

// Close stops answering. What is stored stays, so that the run can go on.
func (h *Server) Close() { h.Stop() }

func (h *Server) memberPath(name string) string {
	return filepath.Join(h.set.Dir, membersDir, name+".json")
}

func (h *Server) writeMember(name string, v any) error {
	return atomicfile.WritePrivate(h.memberPath(name), atomicfile.JSON(v, ""))
}

// readMembers reads the members of a run that goes on.
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
		if there && m.Examples > 0 && !h.set.asksExamples() { // an older server of this run kept it
			m.Examples = 0
			if err := h.writeMember(certs.UserOf(k), m.JoinRequest); err != nil {
				return err
			}
		}
		if !there || !m.hasWord() {
			continue
		}
		key, err := h.Identity.VerifierOf(m.Proof, certs.UserOf(k), nil)
		if err != nil {
			h.set.Log.Warn("a client must join again", "client", k, "reason", err)
			m.JoinRequest = protocol.JoinRequest{}
			continue
		}
		if m.Participant.Joined {
			m.MemberState.Instance, m.Key = m.JoinHeader.Instance, key
		}
		if err := h.checkFixed(m.JoinRequest); err != nil {
			h.set.Log.Warn("what a client said does not match the configuration", "client", k, "reason", err)
			if err := h.leaveOut(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// clearDir removes what an older process left in a folder.
func clearDir(dir string) error {
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, path := range list {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// Signatures verifies what clients signed for each other.
func (h *Server) Signatures() (*certs.Signatures, error) { return h.set.Identity.Signatures("") }

// ID is the run's identity, and Dir the folder of what the server keeps.
func (h *Server) ID() string { return h.set.ID }

func (h *Server) Dir() string { return h.set.Dir }
