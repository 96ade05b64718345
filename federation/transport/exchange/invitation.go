package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// Dial connects to a NATS server. It waits for a server that is not there yet, but not for one that refuses.
func Dial(ctx context.Context, url, name string, log *slog.Logger, options ...nats.Option) (*nats.Conn, error) {
	return dial(ctx, url, name, log, true, options)
}

// DialNow connects to a NATS server that must be running.
func DialNow(ctx context.Context, url, name string, log *slog.Logger, options ...nats.Option) (*nats.Conn, error) {
	return dial(ctx, url, name, log, false, options)
}

func dial(ctx context.Context, url, name string, log *slog.Logger, wait bool, options []nats.Option) (*nats.Conn,
	error) {
	options = append([]nats.Option{nats.Name(name), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(500 * time.Millisecond), nats.Timeout(5 * time.Second),
		nats.ReconnectBufSize(-1), nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS", "error", err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the connection is lost; trying again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("connected again") })}, options...)
	for said := false; ; {
		nc, err := nats.Connect(url, options...)
		if err == nil {
			return nc, nil
		}
		if !wait || !waitable(err) {
			return nil, fmt.Errorf("cannot connect to %s: %w", url, err)
		}
		if !said {
			log.Info("waiting for the NATS server", "url", url, "error", err)
			said = true
		}
		if err := Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// waitable reports whether a connection may succeed later. A connection that ends during its handshake belongs to a
// server that died, or to a proxy whose server is away.
func waitable(err error) bool {
	var network interface{ Timeout() bool }
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, io.EOF) ||
		errors.As(err, &network)
}

func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Invitation is the server's description of a run for a member that wants to join.
type Invitation struct {
	Run     string // identity
	Clients int
	Config  []byte
	Classes []string // of the experiment; none before the first client sent them
	// InsecureDP means that the noise of differential privacy comes from the run's seed.
	InsecureDP bool
	Limit      int
	Largest    int // largest size of an instruction's tensors that the member accepts, in bytes
	subjects.Address
	Client   int // number of the client, or of the job of a worker
	Who      certs.Identity
	server   certs.Verifier        // key of the server
	question protocol.HelloRequest // the request for this invitation
	Key      []byte                // public key of the server
}

// Server describes whose instructions a client follows: those of the holder of a certificate, or of a remembered key.
func (i *Invitation) Server() string {
	if i.Who.Certified() {
		return fmt.Sprintf("the holder of the certificate %q", certs.ServerName)
	}
	return fmt.Sprintf("the holder of key %.16s, which no certificate confirms", protocol.Checksum(i.Key))
}

// ErrLarge refuses tensors that are larger than a member accepts.
var ErrLarge = errors.New("too large")

func checkLarge(size, largest int) error {
	if size > largest {
		return fmt.Errorf("%w: %d bytes; at most %d are taken", ErrLarge, size, largest)
	}
	return nil
}

// Invite requests the invitation for the member with an address, which accepts invitations, and tensors of an
// instruction, of at most largest bytes.
func Invite(ctx context.Context, nc *nats.Conn, at subjects.Address, q protocol.HelloRequest, who certs.Identity,
	largest int, log *slog.Logger) (*Invitation, error) {
	q.Nonce = subjects.NewID()
	b, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	subject := at.Verb(subjects.HelloVerb)
	for {
		m, err := request(ctx, nc, subject, b, 2*time.Second, log)
		if err != nil {
			return nil, err
		}
		if err := checkLarge(len(m), largest); err != nil {
			return nil, fmt.Errorf("the server's invitation: %w", err)
		}
		inv, err := ParseInvitation(m, protocol.Question(subject, b), who)
		if err == nil {
			inv.Address, inv.Who, inv.question, inv.Largest = at, who, q, largest
			return inv, nil
		}
		if !errors.Is(err, errOther) {
			return nil, err
		}
		log.Warn("an answer is dropped", "reason", err)
		if err := Sleep(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// errOther refuses an answer to another request.
var errOther = errors.New("the answer belongs to another request")

// ParseInvitation reads the server's answer to a question; see protocol.Question.
func ParseInvitation(b []byte, question string, who certs.Identity) (*Invitation, error) {
	f, err := protocol.Split(protocol.HelloMessage, b)
	if err != nil {
		return nil, fmt.Errorf("the server's invitation: %w", err)
	}
	var h protocol.HelloReply
	if err := json.Unmarshal(f.Header, &h); err != nil {
		return nil, fmt.Errorf("the server's invitation: %w", err)
	}
	if h.Version != protocol.Version {
		return nil, fmt.Errorf("the server uses message version %d, this program version %d; use the same release on "+
			"both sides", h.Version, protocol.Version)
	}
	server, err := who.VerifierOf(h.Proof, certs.ServerName, nil)
	if err == nil && !server.Verify(protocol.SigningDigest(protocol.HelloMessage, f.Header), f.Signature) {
		err = certs.ErrForged
	}
	if err != nil {
		return nil, fmt.Errorf("the server's invitation: %w", err)
	}
	if h.Question != question {
		return nil, errOther
	}
	if h.Refused != "" {
		return nil, fmt.Errorf("%w: %s", errRefused, protocol.Printable(h.Refused))
	}
	if !subjects.ID.MatchString(h.Run) || h.Limit < 1 {
		return nil, errors.New("the server's invitation is invalid")
	}
	return &Invitation{Run: h.Run, Clients: h.Clients, Config: h.Config, Classes: h.Classes, InsecureDP: h.InsecureDP,
		Limit: h.Limit, server: server, Key: h.Proof.Key}, nil
}

// request repeats a request until there is an answer; each attempt waits for the time wait.
func request(ctx context.Context, nc *nats.Conn, subject string, body []byte, wait time.Duration,
	log *slog.Logger) ([]byte, error) {
	for said := false; ; {
		one, cancel := context.WithTimeout(ctx, wait)
		m, err := nc.RequestWithContext(one, subject, body)
		cancel()
		if err == nil {
			return m.Data, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return nil, closed(nc)
		}
		if last := nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
			return nil, fmt.Errorf("the NATS server does not accept this connection as that client: %w", last)
		}
		if !said {
			log.Info("waiting for promptfed on the other side", "subject", subject, "error", err)
			said = true
		}
		if err := Sleep(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// closed returns why a connection is closed.
func closed(nc *nats.Conn) error {
	if err := nc.LastError(); err != nil {
		return fmt.Errorf("%w: %w", nats.ErrConnectionClosed, err)
	}
	return nats.ErrConnectionClosed
}

// Signatures returns the signatures of an invited client, which keeps its key in a folder.
func (i *Invitation) Signatures(dir string) (*certs.Signatures, error) { return i.Who.Signatures(dir) }
