package distributed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/experiment"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/workers"
	"promptfed/models/bundle"
	"promptfed/runtime/version"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

// workOptions are the flags of work.
type workOptions struct {
	sets   []string
	config string
	jobs   int

	cli.QueueOptions
	log  string             // format of the log: text or json
	idle time.Duration      // time without a run after which work returns; 0 for no limit
	here *experiment.Config // folders of data and runtime of this machine; nil to use config and sets
}

func workCommand() *cobra.Command {
	var options workOptions
	command := &cobra.Command{Use: "work URL [--set data.root=DIR] [--set runtime.provider=cuda] [--jobs N] " +
		"[--idle 10m] [--tls DIR | --token SECRET | --creds FILE]", Args: cli.Exactly(1),
		Short: "train clients for runs on other machines (promptfed run --cluster), one run after the other, until " +
			"stopped"}

	l := command.Flags()
	l.StringArrayVar(&options.sets, "set", nil, "change a key, as in data.root=DIR, eval.sets_root=DIR or "+
		"runtime.provider=cuda; the other keys come from the run")
	l.StringVar(&options.config, "config", "", "configuration of this machine: data.root and runtime")
	l.IntVar(&options.jobs, "jobs", 0, "clients that train at a time (default: runtime.workers)")
	l.DurationVar(&options.idle, "idle", 0, "exit when no run has needed workers for this long; 0 for never")
	l.StringVar(&options.log, "log", "text", "format of the log on standard error: text or json")
	options.QueueOptions.Add(command)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		err := work(cmd.Context(), args[0], options)
		if cmd.Context().Err() != nil { // a signal ends a worker
			return nil
		}
		return err
	}

	return command
}

// Work trains clients of the runs on the NATS server at url, until none needed workers for idle. The folders of data
// and the runtime come from here.
func Work(ctx context.Context, url string, q cli.QueueOptions, idle time.Duration, here experiment.Config) error {
	return work(ctx, url, workOptions{QueueOptions: q, log: "text", idle: idle, here: &here})
}

// work trains clients of the runs on the NATS server at url, one run after the other.
func work(ctx context.Context, url string, flags workOptions) error {
	log, err := logger(flags.log)
	if err != nil {
		return err
	}

	if err := workers.CheckQueue(flags.Queue); err != nil {
		return cli.Usagef("--queue: %w", err)
	}

	if flags.jobs < 0 || flags.jobs > workers.MaxJobs {
		return cli.Usagef("--jobs %d: expected 1 to %d, or 0 for runtime.workers", flags.jobs, workers.MaxJobs)
	}

	options, err := connect(flags.QueueOptions, certs.WorkerUser)
	if err != nil {
		return err
	}

	worker := workers.Worker{Queue: flags.Queue, Program: version.String(), Idle: flags.idle, Log: log}
	reached := ctx
	if flags.idle > 0 {
		c, stop := context.WithTimeoutCause(ctx, flags.idle, fmt.Errorf("no server answered at %s for %v (--idle)", url,
			flags.idle))
		defer stop()
		reached = c
	}

	nc, err := workers.Connect(reached, url, "promptfed work", true, log, options...)
	if err != nil {
		return cmp.Or(context.Cause(reached), err)
	}
	defer nc.Close()

	var now *task
	defer func() { now.close() }()
	for {
		inv, err := worker.FetchInvitation(ctx, nc)
		if errors.Is(err, workers.ErrIdle) {
			return nil
		}

		if err != nil {
			return err
		}

		if now == nil || !bytes.Equal(now.config, inv.Config) {
			now.close()
			if now, err = flags.prepare(ctx, inv.Config); err != nil {
				return err
			}
		}

		if err := worker.Run(ctx, nc, inv, now.info, now.job); !errors.Is(err, workers.ErrRunOver) {
			return err
		}

		log.Info("the run is over")
	}
}

// task is an experiment that this machine works for.
type task struct {
	config     []byte
	federation *experiment.Federation
	worker     *client.Worker
	info       workers.Info
}

func (t *task) close() {
	if t != nil {
		t.worker.Close()
		t.federation.Close()
	}
}

// job executes an instruction for a client.
func (t *task) job(ctx context.Context, client int, instruction message.Instruction,
	s message.ClientState) (message.Reply, *message.ClientState, error) {
	site, err := t.federation.Client(client)
	if err != nil {
		return message.Reply{}, nil, err
	}
	return t.worker.Execute(ctx, site, instruction, s)
}

// prepare opens the experiment of a configuration from the run, with the folders and the runtime of this machine.
func (f workOptions) prepare(ctx context.Context, config []byte) (*task, error) {
	conf, err := configs.ParseText("the run's configuration", config)
	if err == nil {
		conf, err = conf.CheckShared()
	}

	if err != nil {
		return nil, err
	}

	if f.here != nil {
		conf.Runtime, conf.Data.Root, conf.Eval.SetsRoot = f.here.Runtime, f.here.Data.Root, f.here.Eval.SetsRoot
		for i, name := range conf.Backbones {
			for _, path := range f.here.Backbones {
				if bundle.ShortName(path) == name {
					conf.Backbones[i] = path
				}
			}
		}
	}

	if err := change(&conf, f.config, f.sets); err != nil {
		return nil, err
	}

	conf.Runtime.Workers = cmp.Or(f.jobs, conf.Runtime.Workers)
	d := progress.New(conf)
	defer d.Close()
	opened, err := experiment.OpenWorker(ctx, conf, d.Work)
	if err != nil {
		return nil, cli.AsUsage(err)
	}

	d.Opened(opened)
	federation, err := cli.Federate(ctx, opened, d)
	if err != nil {
		return nil, err
	}

	set := federation.Settings()
	t := &task{config: config, federation: federation, worker: client.NewWorker(federation.Experiment, set.Client)}
	t.info.Host, t.info.Jobs = hostName(), set.Workers
	if t.info.Compatibility, err = federation.Compatibility(ctx); err != nil {
		t.close()
		return nil, err
	}

	return t, nil
}

// hostName returns the name of this machine in printable characters.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return regexp.MustCompile(`[^-.\w]`).ReplaceAllString(name[:min(len(name), 60)], "_")
}
