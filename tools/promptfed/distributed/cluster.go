package distributed

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
	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/natsserver"
	"promptfed/federation/net/workers"
	"promptfed/tools/promptfed/cli"
)

// ClusterFlags are the flags of a run whose clients train on other machines.
type ClusterFlags struct {
	QueueOptions
	URL string
	// Opened, if not nil, receives the address of the NATS server that Open starts in this process.
	Opened func(url string) error
}

// ListenScheme is the scheme of the URL of a NATS server that Open starts in this process.
const ListenScheme = "listen://"

// Add adds the flags to a command.
func (f *ClusterFlags) Add(c *cobra.Command) {
	c.Flags().StringVar(&f.URL, "cluster", "", "train the clients on machines that run promptfed work: URL of a NATS "+
		"server with JetStream, or listen://HOST:PORT to start one here")
	f.QueueOptions.add(c)
}

// Cluster is a connection to a NATS server on which runs find workers.
type Cluster struct {
	nc    *nats.Conn
	queue string
	log   *slog.Logger
	stop  func()
}

// Open connects to the NATS server, or starts it. Without --cluster it returns nil.
func (f ClusterFlags) Open(ctx context.Context) (*Cluster, error) {
	if f.URL == "" {
		return nil, nil
	}
	if err := workers.CheckQueue(f.Queue); err != nil {
		return nil, cli.Usagef("--queue: %w", err)
	}
	log, err := logger("text")
	if err != nil {
		return nil, err
	}
	c := &Cluster{queue: f.Queue, log: log}
	if address, ok := strings.CutPrefix(f.URL, ListenScheme); ok {
		return c, f.embed(c, address)
	}
	options, err := f.connect(certs.ServerName)
	if err != nil {
		return nil, err
	}
	if c.nc, err = workers.Connect(ctx, f.URL, "promptfed run", false, log, options...); err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	c.stop = c.nc.Close
	return c, nil
}

// embed starts a NATS server in this process.
func (f ClusterFlags) embed(c *Cluster, address string) error {
	token, err := f.readToken()
	if err != nil {
		return err
	}
	e := natsserver.Options{Listen: address, Token: token, Log: c.log}
	if f.TLS != "" {
		if e.TLS, err = authority.ServerTLS(f.TLS); err != nil {
			return err
		}
		if e.Revoked, err = authority.Revoked(f.TLS); err != nil {
			return err
		}
	} else if token == "" {
		c.log.Warn("anybody who can connect can be a worker, and nothing is encrypted; use --tls (promptfed certs)",
			"listen", address)
	} else {
		c.log.Warn("nothing is encrypted, the token included, and whoever has the token can be a worker; use --tls "+
			"(promptfed certs)", "listen", address)
	}
	s, err := natsserver.Start(e)
	if err != nil {
		return err
	}
	c.log.Info("start workers with: promptfed work " + s.URL())
	c.nc, c.stop = s.Conn(), s.Close
	if f.Opened == nil {
		return nil
	}
	if err := f.Opened(s.URL()); err != nil {
		s.Close()
		return err
	}
	return nil
}

// Close closes the connection and stops a server of this process. The cluster may be nil.
func (c *Cluster) Close() {
	if c != nil {
		c.stop()
	}
}

// Spread lets workers train and test the clients of an experiment; done ends their queue.
func (c *Cluster) Spread(ctx context.Context, b *experiment.Built, set *engine.Settings) (done func(), err error) {
	if err := b.Config.InOneProcess(); err != nil {
		return nil, cli.Usage(err)
	}
	text, err := configs.YAML(b.Shared())
	if err != nil {
		return nil, err
	}
	compatibility, err := b.Compatibility(ctx)
	if err != nil {
		return nil, err
	}
	d, err := workers.Open(ctx, c.nc, workers.Settings{Queue: c.queue, Config: text,
		Compatibility: compatibility, Log: c.log})
	if err != nil {
		return nil, err
	}
	set.Executor, set.Workers = d, workers.MaxJobs
	return func() {
		d.Close()
		t := d.Totals()
		c.log.Info("done", "jobs", t.Jobs, "workers", t.Workers, "bytes_down", t.Down, "bytes_up", t.Up, "late", t.Late,
			"failed", t.Failed, "lost", t.Lost)
		for _, n := range t.Numerics {
			c.log.Warn("workers compute other last digits, so the bytes of this run are not promised",
				"differences", strings.Join(compatibility.Numerics.Differences(n), "; "))
		}
	}, nil
}
