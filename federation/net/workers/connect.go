package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wait"
)

// schemes are the schemes of URLs of NATS servers.
var schemes = []string{"nats", "tls", "ws", "wss"}

// Connect connects to a NATS server with JetStream. If patient is set, it waits for a server that does not answer.
func Connect(ctx context.Context, address, name string, patient bool, log *slog.Logger,
	options ...nats.Option) (*nats.Conn, error) {
	for one := range strings.SplitSeq(address, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) {
			return nil, fmt.Errorf("%s is not the URL of a NATS server; give nats://HOST:PORT or tls://HOST:PORT",
				address)
		}
	}

	nc, err := dial(ctx, address, name, patient, log, options)
	if err != nil {
		return nil, err
	}

	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}

	for _, e := range []error{jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount,
		nats.ErrNoResponders} {
		if errors.Is(err, e) {
			nc.Close()
			return nil, fmt.Errorf("%s: this NATS server has no JetStream for this user; start nats-server with -js, "+
				"or enable jetstream for the account", address)
		}
	}

	return nc, nil
}

func dial(ctx context.Context, address, name string, patient bool, log *slog.Logger, options []nats.Option) (*nats.Conn,
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

	logged, lasting := false, 0
	for {
		nc, err := nats.Connect(address, options...)
		if err == nil {
			return nc, nil
		}

		pause := time.Second
		if final := lastingError(address, err); !patient || final != nil && lasting == retries {
			return nil, cmp.Or(final, fmt.Errorf("cannot connect to %s: %w", address, err))
		} else if final != nil {
			lasting, pause = lasting+1, pause/10
		} else if lasting = 0; !logged {
			log.Info("waiting for the NATS server", "url", address, "error", err)
			logged = true
		}

		if err := wait.For(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// A patient connection repeats an error that lasts, since damaged bytes look like those of a wrong server once.
const retries = 2

// lastingError explains an error that another try will not remove, and returns nil for others.
func lastingError(address string, err error) error {
	if wrong := certs.Explain(address, "name another --tls", err); wrong != nil {
		return wrong
	}

	if refusal := certs.Refusal(err); refusal != nil {
		return fmt.Errorf("%s accepts only machines with a certificate of its authority (%w): give the folder that "+
			"promptfed certs made with --tls DIR", address, refusal)
	}

	if !waitable(err) {
		return fmt.Errorf("cannot connect to %s: %w", address, err)
	}

	return nil
}

// waitable reports whether a connection may succeed later. A connection that ends during its handshake belongs to a
// server that died, or to a proxy without its server.
func waitable(err error) bool {
	var network interface{ Timeout() bool }
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, io.EOF) ||
		errors.As(err, &network)
}

// unavailable reports whether a request that failed may succeed when the connection, the server or its JetStream is
// available again.
func unavailable(err error) bool {
	var refused jetstream.JetStreamError
	if errors.As(err, &refused) && refused.APIError() != nil {
		code := refused.APIError().Code
		return code == 404 || code == 503
	}
	return !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrMaxPayload)
}
