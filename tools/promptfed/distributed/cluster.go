package distributed

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/experiment"
	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/natsserver"
	"promptfed/federation/net/workers"
	"promptfed/tools/promptfed/cli"
)

// Cluster is a connection to a NATS server on which runs find workers.
type Cluster struct {
	nc    *nats.Conn
	queue string
	log   *slog.Logger
	stop  func()
}

// OpenCluster connects to the NATS server of --cluster, or starts it. It returns nil without that flag.
func OpenCluster(ctx context.Context, flags cli.ClusterFlags) (*Cluster, error) {
	if flags.URL == "" {
		return nil, nil
	}

	if err := workers.CheckQueue(flags.Queue); err != nil {
		return nil, cli.Usagef("--queue: %w", err)
	}

	log, err := logger("text")
	if err != nil {
		return nil, err
	}

	cluster := &Cluster{queue: flags.Queue, log: log}
	if address, ok := strings.CutPrefix(flags.URL, cli.ListenScheme); ok {
		return cluster, cluster.embed(flags, address)
	}

	options, err := connect(flags.QueueOptions, certs.ServerName)
	if err != nil {
		return nil, err
	}

	if cluster.nc, err = workers.Connect(ctx, flags.URL, "promptfed run", false, log, options...); err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}

	cluster.stop = cluster.nc.Close
	return cluster, nil
}

// embed starts a NATS server in this process.
func (c *Cluster) embed(flags cli.ClusterFlags, address string) error {
	token, err := flags.Token()
	if err != nil {
		return err
	}

	options := natsserver.Options{Listen: address, Token: token, Log: c.log}
	if flags.TLS != "" {
		if options.TLS, err = authority.ServerTLS(flags.TLS); err != nil {
			return err
		}
		if options.Revoked, err = authority.Revoked(flags.TLS); err != nil {
			return err
		}
	} else if token == "" {
		c.log.Warn("anybody who can connect can be a worker, and nothing is encrypted; use --tls (promptfed certs)",
			"listen", address)
	} else {
		c.log.Warn("nothing is encrypted, the token included, and whoever has the token can be a worker; use --tls "+
			"(promptfed certs)", "listen", address)
	}

	server, err := natsserver.Start(options)
	if err != nil {
		return err
	}

	c.log.Info("start workers with: promptfed work " + server.URL())
	c.nc, c.stop = server.Conn(), server.Close
	if flags.Opened == nil {
		return nil
	}

	if err := flags.Opened(server.URL()); err != nil {
		server.Close()
		return err
	}

	return nil
}

// Close closes the connection and stops a server of this process. A nil Cluster has neither.
func (c *Cluster) Close() {
	if c != nil {
		c.stop()
	}
}

// Spread lets workers train and test the clients of an experiment; done ends their queue.
func (c *Cluster) Spread(ctx context.Context, federation *experiment.Federation, set *engine.Settings) (done func(),
	err error) {
	conf := federation.Task.Protocol.Config
	if err := conf.InOneProcess(); err != nil {
		return nil, cli.Usage(err)
	}

	text, err := configs.YAML(conf.Shared())
	if err != nil {
		return nil, err
	}

	compatibility, err := federation.Compatibility(ctx)
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
