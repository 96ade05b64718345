package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
)

// Link is the way of a client, or of the status user, to the server of a run.
type Link struct {
	URL      string // https://HOST:PORT
	Name     string // common name of the certificate
	Identity certs.Identity
	Token    string // the server's secret; empty for none
	Log      *slog.Logger

	call      wire.FederationClient
	transport *http.Transport
	conn      atomic.Pointer[net.Conn]   // the newest connection
	proxy     *url.URL                   // nil for none
	server    atomic.Pointer[certs.Peer] // the server as it showed itself; nil before

	otherProtocols int // connections in a row to a server that seems to speak another protocol
}

// CheckURL reports an address that is not that of a promptfed serve.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("%q: expected https://HOST:PORT, as promptfed serve prints it", text)
	}

	_, err = strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16)
	if only := (&url.URL{Scheme: "https", Host: u.Host}); err != nil || u.Hostname() == "" ||
		strings.TrimSuffix(u.String(), "/") != only.String() {
		return fmt.Errorf("%q: expected https://HOST:PORT, as promptfed serve prints it", u.Redacted())
	}

	return nil
}

// open prepares the connection. It connects with the first call, through the proxy of the environment (HTTPS_PROXY),
// and reads messages of at most largest bytes.
func (l *Link) open(largest int) error {
	if err := CheckURL(l.URL); err != nil {
		return err
	}

	if err := l.findProxy(); err != nil {
		return err
	}

	conf, err := l.Identity.ClientTLS(l.Name, func() []byte {
		if p := l.server.Load(); p != nil {
			return p.Proof.Key
		}
		return nil
	})

	if err != nil {
		return err
	}

	verify := conf.VerifyConnection
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		err := verify(state)
		if err == nil && state.NegotiatedProtocol != "h2" {
			err = errors.New("it does not speak HTTP/2")
		}
		if err != nil {
			return &serverError{err}
		}
		p, err := l.Identity.PeerOf(state)
		if err == nil {
			l.server.Store(&p)
		}
		return err
	}

	var protocols http.Protocols
	protocols.SetHTTP2(true)
	l.transport = &http.Transport{TLSClientConfig: conf, Protocols: &protocols, Proxy: http.ProxyURL(l.proxy),
		DialContext:         l.dial,
		TLSHandshakeTimeout: 10 * time.Second,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: wire.Window,
			MaxReceiveBufferPerConnection: wire.ConnectionWindow, SendPingTimeout: wire.PingPause,
			PingTimeout: wire.PingTime},
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, r *http.Response) error {
			return l.checkProxy(r)
		}}

	l.call = wire.NewFederationClient(&http.Client{Transport: withToken{l.transport, l.Token}}, l.URL,
		connect.WithGRPC(), connect.WithReadMaxBytes(largest), connect.WithAcceptCompression("gzip", nil, nil))
	return nil
}

func (l *Link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
	if err == nil {
		l.conn.Store(&c)
	}
	return c, err
}

// cut closes the connection with its calls: the next attempt makes another one.
func (l *Link) cut() {
	if c := l.conn.Load(); c != nil {
		(*c).Close()
	}
}

// findProxy reads the proxy for the server from the environment: HTTPS_PROXY, unless NO_PROXY names the server.
func (l *Link) findProxy() error {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: l.host()}})
	if err != nil || proxy != nil && proxy.Scheme != "http" && !strings.HasPrefix(proxy.Scheme, "socks5") {
		return errors.New("HTTPS_PROXY: expected http://HOST:PORT, http://USER:PASSWORD@HOST:PORT or " +
			"socks5://HOST:PORT")
	}
	l.proxy = proxy
	return nil
}

// checkProxy reports a proxy that does not connect to the server.
func (l *Link) checkProxy(r *http.Response) error {
	if r.StatusCode == http.StatusOK {
		return nil
	}

	err := fmt.Errorf("the proxy %s does not connect to %s: %s", l.proxy.Host, l.host(), wire.Printable(r.Status))
	switch {
	case r.StatusCode >= 500: // the server may not be there yet
		return err
	case r.StatusCode == http.StatusProxyAuthRequired:
		err = fmt.Errorf("%w; give the right user and password, as in HTTPS_PROXY=http://USER:PASSWORD@%s", err,
			l.proxy.Host)
	default:
		err = fmt.Errorf("%w; ask its operator to allow it, or exempt the server with NO_PROXY", err)
	}

	return endError{err}
}

// checkServer reads the list of revoked certificates again, and reports whether the server's is still valid.
func (l *Link) checkServer() error {
	if err := l.Identity.Revoked.Refresh(); err != nil {
		l.Log.Error("cannot read", "error", err)
	}
	return l.server.Load().Verifier.Valid()
}

// Close closes the connection.
func (l *Link) Close() {
	if l.transport != nil {
		l.transport.CloseIdleConnections()
	}
}

// withToken adds the token to requests.
type withToken struct {
	http.RoundTripper
	token string
}

func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" {
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	return t.RoundTripper.RoundTrip(r)
}

// serverError means that the other side is not the server of the run: another attempt cannot help.
type serverError struct{ error }

func (e *serverError) Unwrap() error { return e.error }

// ErrRefused reports that the server refuses a client.
var ErrRefused = errors.New("the server refuses this client")

// final returns the reason for which no other attempt can help, or nil. A connection that ends during its handshake
// belongs to a server that died, or to a proxy whose server is away.
func (l *Link) final(err error) error {
	var alert *net.OpError
	var server *serverError
	var end endError
	var record tls.RecordHeaderError
	between := "a proxy"
	if l.proxy != nil {
		between += " " + l.proxy.Host
	}

	between += " that opens TLS connections may be between; ask its operator to pass this host through"
	if wrong := certs.Explain(l.host(), between, err); wrong != nil {
		return wrong
	}

	switch {
	case errors.Is(err, certs.ErrOtherKey):
		return fmt.Errorf("%s: %w; if that is intended, use another --state", l.host(), certs.ErrOtherKey)
	case errors.As(err, &server) && l.Identity.Certified():
		return fmt.Errorf("%s is not the server of a run: %w", l.host(), server.error)
	case errors.As(err, &server):
		return fmt.Errorf("%s is not the server of a run: %w: give --tls DIR if the run has certificates; if not, %s",
			l.host(), server.error, between)
	case errors.As(err, &end):
		return end.error
	case errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record):
		return l.otherProtocol(fmt.Errorf("%s is not the server of a run: it does not speak TLS; give the address "+
			"that promptfed serve prints", l.host()))
	case errors.As(err, &alert) && alert.Op == "remote error" && says(alert.Err, "no application protocol",
		"protocol version not supported", "handshake failure"):
		return l.otherProtocol(fmt.Errorf("%s is not the server of a run: it does not speak HTTP/2 over TLS 1.3 (%w): "+
			"%s", l.host(), alert.Err, between))
	case certs.Refusal(err) != nil:
		return fmt.Errorf("%w: %s does not accept the certificate of %s (%w); the server's log says why",
			ErrRefused, l.host(), l.Name, certs.Refusal(err))
	}

	l.otherProtocols = 0
	if !connect.IsWireError(err) {
		if connect.CodeOf(err) == connect.CodeResourceExhausted {
			return fmt.Errorf("%w: the server's message has more bytes than this client accepts (join --largest)",
				ErrLarge)
		}
		return nil
	}

	switch connect.CodeOf(err) {
	case connect.CodePermissionDenied, connect.CodeUnauthenticated, connect.CodeUnimplemented,
		connect.CodeInvalidArgument, connect.CodeResourceExhausted:
		e, _ := errors.AsType[*connect.Error](err)
		return fmt.Errorf("%w: %s", ErrRefused, wire.Printable(e.Message()))
	}

	return nil
}

// otherProtocol returns the reason if the server seems to speak another protocol for the maxOther-th time in a row, and
// nil before. A bit that is changed on the way has the same effect once, since the first messages of a handshake are
// not protected.
func (l *Link) otherProtocol(why error) error {
	if l.otherProtocols++; l.otherProtocols < maxOther {
		return nil
	}
	return why
}

const maxOther = 3

// says reports whether a TLS alert (RFC 8446, section 6.2) has one of these texts, by which alone it is known. Alerts
// about other things end connections that were damaged on the way.
func says(alert error, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(alert.Error(), text) })
}

func (l *Link) host() string {
	u, err := url.Parse(l.URL)
	if err != nil {
		return l.URL
	}
	return u.Host
}

// ErrLarge refuses tensors that are larger than a client accepts.
var ErrLarge = errors.New("too large")

// FetchStatus requests the status from the server of a run.
func (l *Link) FetchStatus(ctx context.Context) (*wire.Status, error) {
	if l.call == nil { // a later request uses the same connection
		if err := l.open(wire.MaxControl); err != nil {
			return nil, err
		}
	}

	r, err := l.call.Status(ctx, &emptypb.Empty{})
	if err != nil {
		l.otherProtocols = maxOther // there is no other attempt
		if final := l.final(err); final != nil {
			return nil, final
		}
		return nil, fmt.Errorf("cannot connect to %s: %w", l.URL, err)
	}

	return wire.ReadStatus(r.Value)
}
