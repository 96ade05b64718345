package command

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/experiment"
	"promptfed/federation/transport/authority"
	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/natsserver"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/workers"
)

// clusterFlags say whether the clients of a run train on other machines.
type clusterFlags struct {
	url, queue string
	link       linkOptions
	// opened is told where workers reach the server of this process; may be nil.
	opened func(url string) error
}

// listenScheme starts the URL of a NATS server that is to run in this process.
const listenScheme = "listen://"

func (f *clusterFlags) add(c *cobra.Command) {
	l := c.Flags()
	l.StringVar(&f.url, "cluster", "", "train the clients on machines that run promptfed work: URL of a NATS server, "+
		"or listen://HOST:PORT to start one here")
	addQueue(c, &f.queue)
	addLink(c, &f.link)
}

func addQueue(c *cobra.Command, queue *string) {
	c.Flags().StringVar(queue, "queue", "default", "name of the work queue on the NATS server; workers must use the "+
		"same")
}

func addLink(c *cobra.Command, o *linkOptions) {
	l := c.Flags()
	o.addToken(c, "secret that both sides use")
	l.StringVar(&o.creds, "creds", "", "NATS credentials file")
	l.StringVar(&o.tls, "tls", "", "folder that promptfed certs made")
}

// cluster is a connection over which runs find workers.
type cluster struct {
	nc    *nats.Conn
	queue string
	who   certs.Identity
	log   *slog.Logger
	stop  func()
}

// open connects; without --cluster there is none, and nil is given.
func (f clusterFlags) open(ctx context.Context) (*cluster, error) {
	if f.url == "" {
		return nil, nil
	}
	if err := subjects.CheckName(f.queue); err != nil {
		return nil, usageError{fmt.Errorf("--queue: %w", err)}
	}
	log, err := logger("text")
	if err != nil {
		return nil, err
	}
	f.link.user = certs.ServerName
	c := &cluster{queue: f.queue, log: log}
	if c.who, err = f.link.identity(); err != nil {
		return nil, err
	}
	if address, ok := strings.CutPrefix(f.url, listenScheme); ok {
		return c, f.embed(c, address)
	}
	options, err := f.link.options()
	if err != nil {
		return nil, err
	}
	if c.nc, err = exchange.DialNow(ctx, f.url, "promptfed run", log, options...); err != nil {
		return nil, err
	}
	c.stop = c.nc.Close
	return c, nil
}

// embed runs a NATS server in this process.
func (f clusterFlags) embed(c *cluster, address string) error {
	if err := f.link.secret(); err != nil {
		return err
	}
	e := natsserver.Options{Listen: address, Workers: true, Run: f.queue, Token: f.link.token, Limit: 1 << 20,
		Log: c.log}
	if f.link.tls != "" {
		var err error
		if e.TLS, err = authority.ServerTLS(f.link.tls); err != nil {
			return err
		}
		if e.Revoked, err = authority.Revoked(f.link.tls); err != nil {
			return err
		}
	} else if f.link.token == "" {
		c.log.Warn("anybody who can connect can be a worker, and nothing is encrypted; use --tls (promptfed certs)",
			"listen", address)
	} else {
		c.log.Warn(plainToken, "listen", address)
	}
	s, err := natsserver.Start(e)
	if err != nil {
		return err
	}
	c.log.Info("start workers with: promptfed work " + s.URL())
	c.nc, c.stop = s.Conn(), s.Close
	if f.opened == nil {
		return nil
	}
	if err := f.opened(s.URL()); err != nil {
		s.Close()
		return err
	}
	return nil
}

func (c *cluster) close() {
	if c != nil {
		c.stop()
	}
}

// spread has the turns of an experiment's clients done by workers; done ends their queue.
func (c *cluster) spread(ctx context.Context, b *experiment.Built, set *engine.Settings) (done func(), err error) {
	if err := b.Config.InOneProcess(); err != nil {
		return nil, usageError{err}
	}
	text, err := configs.YAML(b.Shared())
	if err != nil {
		return nil, err
	}
	footing, err := b.Compatibility(ctx)
	if err != nil {
		return nil, err
	}
	d, err := workers.Open(ctx, c.nc, workers.Settings{Queue: c.queue, Dir: set.Dir,
		Config: text, Compatibility: footing, Identity: c.who, Log: c.log})
	if err != nil {
		return nil, err
	}
	set.Executor, set.Workers = d, subjects.MaxJobs
	return func() {
		d.Close()
		t := d.Totals()
		c.log.Info("done", "jobs", t.Jobs, "workers", t.Workers, "bytes_down", t.Down, "bytes_up", t.Up, "late", t.Late,
			"failed", t.Failed, "lost", t.Lost)
		for _, n := range t.Numerics {
			c.log.Warn("workers computed otherwise in the last digits, so the bytes of this run are not promised",
				"differences", strings.Join(footing.Numerics.Differences(n), "; "))
		}
	}, nil
}
