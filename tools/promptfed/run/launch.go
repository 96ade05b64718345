package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/federation/net/authority"
	"promptfed/federation/net/wait"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/ort"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/distributed"
	"promptfed/tools/promptfed/signals"
)

// launchFlags are the flags of launch: those of run and its own.
type launchFlags struct {
	run    flags
	member member
	meet   string
	idle   time.Duration
}

func launchCommand(o cli.Outputs) *cobra.Command {
	flags := launchFlags{run: flags{outputs: o}, member: fromSlurm(os.Getenv)}
	command := &cobra.Command{Use: "launch CONFIG...|--images FOLDER [flags of run] [--rank I --tasks N] [--meet DIR]",
		Short: "run as one of several tasks (srun promptfed launch): task 0 runs, the others train its clients",
		Long: "Task 0 of a job does what run --cluster does, the others do what work does. Under Slurm the " +
			"environment says which task this is, how many there are and how many processors it has; elsewhere give " +
			"--rank and --tasks. Task 0 writes its address, and certificates for this job only, into a folder that " +
			"all tasks share (--meet). On SIGUSR1, task 0 finishes its round, stops, and has Slurm queue the job " +
			"again, which then continues; on SIGTERM it finishes its round and stops."}

	flags.run.addRun(command)
	l := command.Flags()
	l.IntVar(&flags.member.rank, "rank", flags.member.rank, "number of this task, from 0; under Slurm SLURM_PROCID")
	l.IntVar(&flags.member.tasks, "tasks", flags.member.tasks, "number of tasks; under Slurm SLURM_NTASKS")
	l.StringVar(&flags.meet, "meet", "",
		"folder in which the tasks find each other, on a disk that all share (default "+
			"promptfed-JOB in the current folder)")
	l.DurationVar(&flags.idle, "idle", 10*time.Minute, "how long a task waits for task 0, or for work from it")
	command.RunE = func(cmd *cobra.Command, args []string) error { return flags.launch(cmd.Context(), args) }
	return command
}

// launch runs this task of the job.
func (f launchFlags) launch(ctx context.Context, args []string) error {
	member := f.member
	if member.tasks < 1 || member.rank < 0 || member.rank >= member.tasks {
		return cli.Usagef("launch: task %d of %d; start it with srun, or give --rank from 0 and --tasks",
			member.rank, member.tasks)
	}

	if f.meet == "" {
		f.meet = "promptfed-" + member.job
	}

	if member.restarts > 0 { // --force held for the first start
		f.run.use.Resume, f.run.use.Force = true, false
	}

	finish := signals.FromContext(ctx)
	finish.FinishOnTerm()
	if member.rank > 0 {
		return f.work(ctx, args)
	}

	err := f.lead(ctx, args)
	if ctx.Err() != nil && finish.Restart() {
		return errors.Join(err, member.requeue())
	}

	return err
}

// meeting is the file in which task 0 publishes its address.
type meeting struct {
	URL      string
	Job      string
	Restarts int
}

func (f launchFlags) meetingFile() string { return filepath.Join(f.meet, "task-0.json") }
func (f launchFlags) certs() string       { return filepath.Join(f.meet, "job-certs") }
func (f launchFlags) signer() string      { return filepath.Join(f.meet, "job-authority") }

func (f launchFlags) queue() cli.QueueOptions {
	return cli.QueueOptions{Queue: "default", Access: cli.Access{TLS: f.certs()}}
}

// clear removes the folder of the meeting. A folder with other files is an error.
func (f launchFlags) clear() error {
	own := []string{f.meetingFile(), f.certs(), f.signer()}
	list, err := os.ReadDir(f.meet)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	for _, e := range list {
		if !slices.Contains(own, filepath.Join(f.meet, e.Name())) {
			return fmt.Errorf("%s holds %s, which launch did not write; use an empty folder or a new one", f.meet,
				e.Name())
		}
	}

	return os.RemoveAll(f.meet)
}

// lead runs the experiment on task 0, with the other tasks as workers.
func (f launchFlags) lead(ctx context.Context, args []string) error {
	if f.member.tasks == 1 {
		return f.run.start(ctx, args)
	}

	if err := f.clear(); err != nil { // left by a job of the same name that was killed
		return fmt.Errorf("--meet: %w", err)
	}

	if err := os.MkdirAll(f.meet, 0o700); err != nil {
		return fmt.Errorf("--meet: %w", err)
	}
	defer f.clear()

	if _, err := authority.Make(f.certs(), f.signer(), 0, addresses(), 90*24*time.Hour); err != nil {
		return fmt.Errorf("certificates of the job: %w", err)
	}

	if err := os.RemoveAll(f.signer()); err != nil {
		return err
	}

	f.run.cluster = cli.ClusterFlags{URL: cli.ListenScheme + ":0", QueueOptions: f.queue()}
	f.run.cluster.Opened = func(url string) error {
		return atomicfile.Write(f.meetingFile(), atomicfile.JSON(meeting{url, f.member.job, f.member.restarts}, ""))
	}
	return f.run.start(ctx, args)
}

// addresses returns the names and addresses of this machine.
func addresses() []string {
	out := []string{"localhost"}
	if name, err := os.Hostname(); err == nil {
		out = append(out, name)
	}

	list, err := net.InterfaceAddrs()
	if err != nil {
		return out
	}

	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			out = append(out, n.IP.String())
		}
	}

	return out
}

// work trains clients of task 0 until task 0 ends.
func (f launchFlags) work(ctx context.Context, args []string) error {
	here, err := f.here(args)
	if err != nil {
		return err
	}
	_, _, end := signals.FromContext(ctx).Begin(ctx) // Slurm signals all tasks; clients of the round still train here
	defer end()

	at, err := f.find(ctx)
	if err != nil {
		return err
	}

	ctx, over := context.WithCancel(ctx)
	defer over()
	go func() {
		for wait.For(ctx, time.Second) == nil {
			if _, err := os.Stat(f.meetingFile()); errors.Is(err, fs.ErrNotExist) {
				over()
			}
		}
	}()

	err = distributed.Work(ctx, at.URL, f.queue(), f.idle, here)
	if ctx.Err() != nil {
		return nil
	}

	return err
}

// find waits until task 0 answers at the address that it wrote. A job that was killed leaves its address in the folder.
func (f launchFlags) find(ctx context.Context) (at meeting, err error) {
	if f.idle == 0 { // as for promptfed work: without end
		f.idle = math.MaxInt64
	}

	limited, stop := context.WithTimeout(ctx, f.idle)
	defer stop()
	why := fmt.Errorf("task 0 of job %s did not write its address into %s within %v; --meet must be a folder that all "+
		"tasks share", f.member.job, f.meet, f.idle)
	for {
		there, err := atomicfile.ReadJSON(f.meetingFile(), &at)
		if err == nil && there && at.Job == f.member.job && at.Restarts == f.member.restarts {
			if err = at.answers(limited); err == nil {
				return at, nil
			}
			why = fmt.Errorf("task 0 of job %s does not answer at the address in %s within %v: %w; start task 0 with "+
				"the same --meet", f.member.job, f.meet, f.idle, err)
		}
		if wait.For(limited, 200*time.Millisecond) != nil {
			return at, cmp.Or(ctx.Err(), why)
		}
	}
}

// answers returns an error unless a server listens at the address.
func (m meeting) answers(ctx context.Context) error {
	address, err := url.Parse(m.URL)
	if err != nil {
		return err
	}

	connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address.Host)
	if err != nil {
		return err
	}

	return connection.Close()
}

// here returns the folders of data and the runtime of this task. They come from the first configuration and from Slurm.
func (f launchFlags) here(args []string) (experiment.Config, error) {
	l, err := configs.Loaded{}, error(nil)
	if len(args) > 0 {
		l, err = configs.Open(args[0], f.run.sets)
	} else {
		l, err = configs.OpenText("", nil, f.run.sets)
	}

	conf := l.Config
	if err != nil {
		return conf, cli.Usage(err)
	}

	if f.run.images != "" {
		conf.Data.Root = f.run.images
	}

	if conf.Runtime.Workers == 0 {
		conf.Runtime.Workers = f.member.processors
	}

	if conf.Runtime.Provider == ort.CPU && f.member.devices > 0 {
		slog.Info("this task has GPUs but runs on the CPU; set runtime.provider=cuda to use them",
			"gpus", f.member.devices)
	}

	if conf.Runtime.Provider != ort.CPU && conf.Runtime.Devices < 2 {
		conf.Runtime.Devices = f.member.devices
	}

	return conf, nil
}

// requeue asks Slurm to start the job again.
func (m member) requeue() error {
	if m.slurm == "" {
		return nil
	}

	out, err := exec.Command("scontrol", "requeue", m.slurm).CombinedOutput()
	if err != nil {
		return fmt.Errorf("scontrol requeue %s: %w: %s", m.slurm, err, out)
	}

	slog.Info("Slurm starts the job again; it continues after the last finished round", "job", m.slurm)
	return nil
}
