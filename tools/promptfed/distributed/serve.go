package distributed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/identity"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/tensor"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
	"promptfed/tools/promptfed/runfolder"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	sets           []string
	out            string
	listen         string
	link           cli.Access
	classes        string
	clients, wait  int
	deadline       time.Duration
	quorum         float64
	maxNorm        string
	maxExamples    string
	limit, largest int
	resume, force  bool
	insecureDP     bool
	insecure       bool
	log, metrics   string
	outputs        cli.Outputs

	keepQuorum bool // quorum is given

	norm     float64 // of maxNorm; 0 for auto, -1 for off
	examples int     // of maxExamples, likewise
}

func serveCommand(o cli.Outputs) *cobra.Command {
	flags := serveFlags{outputs: o}
	command := &cobra.Command{Use: "serve CONFIG --out DIR [--tls DIR] [--listen HOST:PORT] [--clients N] " +
		"[--deadline 5m] [--quorum 0.8] [--resume] [--force]", Args: cli.Exactly(1),
		Short: "run an experiment whose clients are on other machines (promptfed join); the server holds no data"}
	flagSet := command.Flags()
	flagSet.StringArrayVar(&flags.sets, "set", nil, cli.SetHelp)
	flagSet.Var((*cli.NonEmpty)(&flags.out), "out", "run folder (default runs/NAME)")

	flagSet.StringVar(&flags.listen, "listen", "",
		"HOST:PORT that clients connect to; port 0 for any free one (default :8443 with --tls, 127.0.0.1:8443 without)")
	flags.link.Add(command, "secret that clients must have", "folder made by promptfed certs: only clients with its "+
		"certificates are accepted, and each certificate names one client")
	flagSet.StringVar(&flags.classes, "classes", "",
		"file with the class names, one per line, in order (default: those of most clients that join before the start)")
	flagSet.IntVar(&flags.clients, "clients", 0, "number of clients (default partition.clients)")
	flagSet.IntVar(&flags.wait, "wait", 0, "number of clients that must have joined before the start (default: all)")

	flagSet.DurationVar(&flags.deadline, "deadline", 5*time.Minute,
		"time that clients have for every instruction; 0 for no limit")
	flagSet.Float64Var(&flags.quorum, "quorum", 0.8, "share of the asked clients that must answer; with fewer, the "+
		"instruction is sent again. If it is given, the server waits for it without end")
	flagSet.StringVar(&flags.maxNorm, "max-norm", "auto",
		"refuse uploads that moved the shared parameters farther than "+
			"this number, or than is usual among all clients (auto); off for no limit")
	flagSet.StringVar(&flags.maxExamples, "max-examples", "auto",
		"largest weight of an upload, in examples: a number, or a "+
			"multiple of what clients have (auto); off for no limit")

	flagSet.IntVar(&flags.limit, "limit", server.DefaultLimit,
		"bytes of tensors in a message; larger ones are sent in parts")
	flagSet.IntVar(&flags.largest, "largest", wire.DefaultLargest,
		"most bytes of tensors that are accepted from a client, or sent to one")
	flagSet.BoolVar(&flags.insecure, "insecure", false,
		"without --tls, let clients on other machines join: whoever comes first as a client is that client")
	flagSet.BoolVar(&flags.insecureDP, "insecure-dp", false,
		"draw the noise of differential privacy from the run's seed, to "+
			"repeat a run byte for byte; whoever knows the seed can subtract it, so it protects nothing")

	flagSet.BoolVar(&flags.resume, "resume", false, "continue after the last finished round")
	flagSet.BoolVar(&flags.force, "force", false, cli.ForceHelp)
	flagSet.StringVar(&flags.log, "log", "text", "format of the log on standard error: text or json")
	flagSet.StringVar(&flags.metrics, "metrics", "",
		"HOST:PORT that serves /metrics (Prometheus) and /healthz, which are not protected: use 127.0.0.1")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		flags.keepQuorum = flagSet.Changed("quorum")
		return serve(cmd.Context(), args[0], flags)
	}

	return command
}

// check checks the ranges of flags.
func (f *serveFlags) check() (err error) {
	const mostLimit = 32 << 20
	switch {
	case !(f.quorum > 0 && f.quorum <= 1):
		return fmt.Errorf("--quorum %v: expected a number above 0, at most 1", f.quorum)
	case f.deadline < 0:
		return fmt.Errorf("--deadline %v: expected 0 or more", f.deadline)
	case f.clients < 0 || f.clients > certs.MaxClients:
		return fmt.Errorf("--clients %d: give 1 to %d, or leave it out to use partition.clients", f.clients,
			certs.MaxClients)
	case f.limit < 1 || f.limit > mostLimit:
		return fmt.Errorf("--limit %d: expected 1 to %d", f.limit, mostLimit)
	case f.largest < 1:
		return fmt.Errorf("--largest %d: expected 1 or more", f.largest)
	}

	if f.norm, err = bound("max-norm", f.maxNorm); err != nil {
		return err
	}

	examples, err := bound("max-examples", f.maxExamples)
	if f.examples = int(examples); err == nil && examples != math.Trunc(examples) {
		err = fmt.Errorf("--max-examples %s: expected a whole number", f.maxExamples)
	}

	if err == nil {
		f.listen, err = f.address()
	}

	return err
}

// address returns the address to listen on. Without certificates it must be a loopback one, unless --insecure is given.
func (f serveFlags) address() (string, error) {
	if f.link.TLS != "" && f.insecure {
		return "", errors.New("--insecure: with --tls every client needs a certificate; give only one of them")
	}

	if f.listen == "" {
		if f.link.TLS == "" && !f.insecure {
			return "127.0.0.1:8443", nil
		}
		return ":8443", nil
	}

	host, port, err := net.SplitHostPort(f.listen)
	if n, e := strconv.Atoi(port); err != nil || e != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("--listen %q: expected HOST:PORT, such as :8443", f.listen)
	}

	if ip := net.ParseIP(host); f.link.TLS == "" && !f.insecure && host != "localhost" && !ip.IsLoopback() {
		return "", fmt.Errorf("--listen %s: without certificates only clients on this machine can join; give --tls "+
			"DIR (promptfed certs), or --insecure to let anybody be a client", f.listen)
	}

	return f.listen, nil
}

// insecure describes a connection without certificates.
const insecure = "insecure: encrypted, but no certificate says whose the keys are; whoever comes first as a client " +
	"is that client (use --tls, promptfed certs)"

func serve(ctx context.Context, path string, flags serveFlags) error {
	log, err := logger(flags.log)
	if err != nil {
		return err
	}

	if err := flags.check(); err != nil {
		return cli.Usage(err)
	}

	loaded, err := cli.LoadChecked(path, flags.sets, configs.Loaded.CheckWithoutData)
	if err != nil {
		return err
	}

	if sweep, err := configs.HasSection(path, "sweep"); err != nil {
		return cli.Usage(err)
	} else if sweep {
		return cli.Usagef("%s has a section sweep, and serve runs one experiment: give a file without it, such as "+
			"config.yaml of a run of the sweep", path)
	}

	if loaded.Empty() {
		return cli.Usagef("%s is empty; a server needs at least the method (promptfed list methods)", path)
	}

	conf := loaded.Config
	flags.clients = cmp.Or(flags.clients, conf.Partition.Clients)
	flags.wait = cmp.Or(flags.wait, flags.clients)
	conf.Partition.Clients = flags.clients
	protocol, err := experiment.OpenServer(conf, flags.insecureDP)
	if err != nil {
		return cli.AsUsage(err)
	}

	if flags.insecureDP {
		log.Warn(seededNoise)
	}

	if flags.clients < 1 || flags.wait < 1 || flags.wait > flags.clients {
		return cli.Usagef("--clients %d, --wait %d: both must be 1 or more, and --wait at most "+
			"--clients", flags.clients, flags.wait)
	}

	dir := cmp.Or(flags.out, filepath.Join(cli.RunsFolder, conf.Name))
	use := runfolder.Use{Resume: flags.resume, Force: flags.force}
	release, err := runfolder.Claim(dir, use)
	if err != nil {
		return err
	}
	defer release()

	set, err := flags.settings(dir, protocol, log)
	if err != nil {
		return err
	}

	silent, lying := endures(set, protocol)
	log.Info("silent clients: " + silent)
	log.Info("lying clients: " + lying)
	display := progress.New(conf)
	defer display.Close()
	alive := runfolder.SignsOfLife(dir)
	set.OnReply = func(instruction message.Instruction, client int) {
		alive()
		display.Turn(instruction, client)
	}

	secret := flags.serverNoise(dir, set, protocol)
	set.Agreed = func(terms spec.RunSpec) error {
		_, err := flags.identify(dir, protocol.RunsAs(terms))
		if err == nil {
			_, err = secret()
		}
		return err
	}

	server, err := server.Open(set)
	if err != nil {
		return err
	}
	defer server.Close()

	if flags.link.TLS == "" {
		log.Warn(insecure, "listen", flags.listen)
	}

	log.Info("clients join with: "+howToJoin(server.URL(), flags.link.TLS), "clients", flags.clients)
	if flags.link.TLS != "" {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go renewOnHangup(ctx, flags.link.TLS, server, log)
	}

	m := newMeter(server)
	if flags.metrics != "" {
		stop, err := serveMetrics(flags.metrics, m, log)
		if err != nil {
			return err
		}
		defer stop()
	}

	round := func(r record.Record) {
		m.round(r)
		display.Round(r)
	}

	if err := flags.train(ctx, server, set, protocol, secret, dir, display, round, log); err != nil {
		if ctx.Err() != nil {
			return cli.Stopped(ctx)
		}
		return err
	}

	r, err := flags.outputs.Report([]string{dir}, dir)
	if err != nil {
		return err
	}

	fmt.Print(r.Text(cli.View{}))
	fmt.Println("written to", dir)
	return nil
}

// identify returns the identity of a run, whose folder holds no other experiment.
func (f serveFlags) identify(dir string, protocol *experiment.Protocol) (identity.Identity, error) {
	id, err := protocol.Identity()
	if err == nil {
		err = runfolder.CheckExperiment(dir, id, runfolder.Use{Resume: f.resume})
	}
	return id, err
}

// serverNoise returns a function that opens the secret noise of the server, once; nil if there is none.
func (f serveFlags) serverNoise(dir string, set server.Settings,
	protocol *experiment.Protocol) func() (*noise.Noise, error) {
	return sync.OnceValues(func() (*noise.Noise, error) {
		if !protocol.Private() || f.insecureDP {
			return nil, nil
		}
		return noise.Open(filepath.Join(set.Dir, noiseFile), set.ID, f.resume && state.HasCheckpoint(dir))
	})
}

// train waits for clients and runs the rounds.
func (f serveFlags) train(ctx context.Context, server *server.Server, served server.Settings,
	protocol *experiment.Protocol, secret func() (*noise.Noise, error), dir string, display *progress.Display,
	round func(record.Record), log *slog.Logger) (err error) {
	log.Info("waiting for clients", "needed", f.wait, "of", f.clients)
	terms, err := server.Wait(ctx, f.wait)
	if err != nil {
		return err
	}

	protocol = protocol.RunsAs(terms)
	wrap, err := serveSecure(server, served, protocol)
	if err != nil {
		return err
	}

	id, err := f.identify(dir, protocol)
	if err == nil {
		err = errors.Join(cli.WriteConfig(dir, protocol.Config), id.Write(dir))
	}

	if err != nil {
		return err
	}

	end, err := runfolder.Begin(ctx, dir, protocol.Config, nil, &runfolder.Clock{Start: time.Now()})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, end(err)) }()

	set := protocol.Config.Settings()
	set.Dir, set.Resume, set.Remote, set.Wrap = dir, f.resume, server, wrap
	set.OnRound, set.OnWarning = round, display.Warn
	if set.ServerNoise, err = secret(); err != nil {
		return err
	}

	display.Start(protocol.Config.Train.Rounds, f.clients)
	r, err := engine.Run(ctx, protocol.Experiment, set)
	if err != nil {
		return err
	}

	if err := writeServerClients(dir, terms.Classes, server.Participants()); err != nil {
		return err
	}

	err = server.Finish(ctx, len(r.Records), func(client int) (shared, down tensor.Map, err error) {
		m, _, err := state.ReadPrompts(dir, client)
		return m.WithoutPrefix("shared"), m.WithoutPrefix("down/" + strconv.Itoa(client)), err
	})

	t := server.Totals()
	done := []any{"bytes_up", t.BytesUp, "bytes_down", t.BytesDown, "replies", t.Replies, "late", t.Late, "refused",
		t.Refused, "repeats", t.Repeats}
	if far := server.LongestMove(); far > 0 { // the server measures moves
		done = append(done, "longest_move", math.Round(10*far)/10)
	}

	if f.link.TLS == "" {
		done = append(done, "insecure", true)
	}

	log.Info("done", done...)
	return err
}

// writeServerClients writes clients.json without counts of examples, which a server does not know.
func writeServerClients(dir string, classes []string, members []message.Participant) error {
	out := experiment.Clients{Classes: classes}
	for _, m := range members {
		none := make([]int, len(classes))
		out.Clients = append(out.Clients, experiment.ClientInfo{Backbone: m.Task.Backbone, Domain: m.Domain,
			Train: none, Val: []int{}, Test: none})
	}
	return cli.WriteInfo(dir, runfolder.ClientsFile, out)
}
