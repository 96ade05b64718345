package distributed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/facts"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/wire"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
	"promptfed/tools/promptfed/runfolder"
)

// joinFlags are the flags of join.
type joinFlags struct {
	sets        []string
	config      string
	state       string
	domain, log string
	client      int
	largest     int
	partition   bool
	require     string
	yes         bool
	insecureDP  bool
	accept      []string
	link        cli.Access

	required    []facts.Requirement
	differences *[]error // found by --check; nil without it
}

func joinCommand() *cobra.Command {
	flags := joinFlags{client: -1}
	command := &cobra.Command{Use: "join URL --client K [--config CONFIG] [--set data.set=folder --set " +
		"data.root=DIR] [--state DIR] [--tls DIR] [--token SECRET]", Args: oneURL,
		Short: "take part in an experiment of promptfed serve as one client; this machine only makes outgoing " +
			"connections"}

	flagSet := command.Flags()
	flagSet.IntVar(&flags.client, "client", -1, "number of this client, from 0")
	flagSet.StringVar(&flags.config, "config", "",
		"configuration of this client: data, backbones, runtime; keys that the server decides must agree")
	flagSet.StringArrayVar(&flags.sets, "set", nil, "change a key, as in data.root=DIR or runtime.provider=cuda")
	flagSet.Var((*cli.NonEmpty)(&flags.state), "state", "folder of this client's state and results (default "+
		"runs/join-K, and runs/join-K-RUN if that one holds a run that is over)")
	flagSet.BoolVar(&flags.partition, "partition", false, "use this client's part of the partition of the data, as "+
		"promptfed run does, instead of all of the data")

	flagSet.StringVar(&flags.domain, "domain", "", "domain of this client's data, for reports")
	flagSet.Var((*cli.NonEmpty)(&flags.require), "require", "conditions for joining, as in "+
		"dp.epsilon<=8,secure_aggregation,method=fedpha (docs/distributed.md)")
	check := flagSet.Bool("check", false,
		"compare this site's data and settings with the server's, and end before anything "+
			"is sent: exit code 0 if they agree")
	flagSet.BoolVar(&flags.yes, "yes", false, "agree to the terms that are shown, without being asked on a terminal")
	flagSet.BoolVar(&flags.insecureDP, "insecure-dp", false,
		"take part even if the noise of differential privacy comes from "+
			"the run's seed (serve --insecure-dp) and protects nothing")

	flagSet.StringArrayVar(&flags.accept, "accept-method", nil,
		"SHA-256 of a file of the server's with a method, whose graph may read this client's features and labels")
	flagSet.IntVar(&flags.largest, "largest", wire.DefaultLargest,
		"most bytes that are accepted from the server at a time: "+
			"of the configuration, or of the tensors of an instruction")
	flagSet.StringVar(&flags.log, "log", "text", "format of the log on standard error: text or json")
	flags.link.Add(command, "the server's secret", "folder with ca.pem, client-K.pem and client-K-key.pem, as "+
		"promptfed certs makes it")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if flags.client < 0 {
			return cli.Needed("join", "--client K")
		}

		if flags.largest < 1 {
			return cli.Usagef("--largest %d: expected 1 or more", flags.largest)
		}

		var err error
		if flags.required, err = requirements(flags.require); err != nil {
			return cli.Usage(err)
		}

		if *check {
			flags.differences = new([]error)
		}

		err = join(cmd.Context(), args[0], flags)
		if err != nil && cmd.Context().Err() != nil {
			return errors.New("stopped; the same command continues")
		}

		return err
	}

	return command
}

// finishedWait is the time for which a client whose run is over looks for a server with another run.
const finishedWait = 3 * time.Second

func join(ctx context.Context, url string, flags joinFlags) error {
	log, err := logger(flags.log)
	if err != nil {
		return err
	}

	named := flags.state != ""
	if !named {
		flags.state = filepath.Join("runs", "join-"+strconv.Itoa(flags.client))
	}

	over := func() {
		fmt.Printf("the run is over; promptfed predict %s --client %d IMAGE... classifies with what this client "+
			"learned\n", flags.state, flags.client)
	}

	finished, waits := netclient.FinishedRun(flags.state), ctx
	if finished == "" {
		if err := flags.checkImages(); err != nil {
			return err
		}
	} else { // the server of the run may have stopped, or may have another run now
		var cancel context.CancelFunc
		waits, cancel = context.WithTimeout(ctx, finishedWait)
		defer cancel()
	}

	if err := netclient.MakeFolder(flags.state); err != nil {
		return err
	}

	server, err := link(flags.link, url, certs.UserOf(flags.client), flags.state, log)
	if err != nil {
		return err
	}
	defer server.Close()

	inv, err := netclient.FetchInvitation(waits, server, flags.largest)
	if finished != "" && ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || err == nil &&
		inv.Run == finished) {
		over()
		return nil
	}

	if err != nil {
		return err
	}

	if finished != "" && !named { // another experiment at this site: another folder, the same key
		log.Info("the folder of a run that is over stays", "folder", flags.state)
		flags.state = fmt.Sprintf("%s-%.8s", flags.state, inv.Run)
		log.Info("this run has a folder of its own", "folder", flags.state)
		if err := netclient.MakeFolder(flags.state); err != nil {
			return err
		}
		if finished = netclient.FinishedRun(flags.state); finished == inv.Run {
			over()
			return nil
		}
		if err := flags.checkImages(); err != nil {
			return err
		}
	}

	if finished != "" {
		return fmt.Errorf("%s belongs to run %.12s, which is over; the server has run %.12s: use another --state, or "+
			"remove that folder", flags.state, finished, inv.Run)
	}

	if flags.differences != nil {
		return flags.compare(ctx, inv, log)
	}

	release, err := runfolder.LockClient(flags.state) // also against a client of another server
	if err != nil {
		return err
	}
	defer release()

	a, done, err := flags.prepare(ctx, inv, log)
	if err != nil {
		return err
	}

	err = a.Run(ctx)
	if err = errors.Join(err, done(err)); err != nil {
		return err
	}

	over()
	return nil
}

// checkImages checks, before the client sends anything, that the flags name the images of this client. The
// configuration of the server does not name them.
func (f joinFlags) checkImages() error {
	conf := experiment.Defaults()
	if err := configs.DecodeOptionalFile(&conf, f.config, f.sets); err != nil {
		return cli.Usage(err)
	}

	if conf.Data.Set == "" {
		return cli.Needed("join", "this client's images: --set data.set=folder --set data.root=DIR, or these keys in "+
			"--config FILE (promptfed list datasets shows other sets; data.set=synthetic is images that the program "+
			"draws)")
	}

	return nil
}

// prepare opens the data and the backbone of this client and returns the client. done releases them; its argument is
// the error with which the work ended.
func (f joinFlags) prepare(ctx context.Context, inv *netclient.Invitation, log *slog.Logger) (member *netclient.Client,
	done func(error) error, err error) {
	began := time.Now()
	conf, err := f.configuration(inv)
	if err != nil {
		return nil, nil, err
	}

	d := progress.New(conf)
	defer d.Close()
	task, err := f.open(ctx, conf, inv, inv.Classes, d, log)
	if err != nil {
		return nil, nil, err
	}

	used := netclient.HasStates(f.state, inv.Run)
	if used {
		if err := checkSameImages(f.state, task.Data.Digest); err != nil {
			return nil, nil, err
		}
	}

	private := task.Protocol.Private()
	federation, err := cli.Federate(ctx, task, d)
	if err != nil {
		return nil, nil, err
	}

	release := func() { federation.Close() }
	defer func() {
		if err != nil {
			release()
		}
	}()

	participant, err := federation.Participant()
	if err != nil {
		return nil, nil, err
	}

	computed, err := task.Numerics()
	if err != nil {
		return nil, nil, err
	}

	request := wire.JoinRequest{RunSpec: federation.Experiment.RunSpec(),
		Participant: message.Participant{Task: participant.Task,
			Domain: participant.Client.Domain}, Backbone: participant.Backbone, Tokens: participant.Tokens,
		Numerics: computed.Digest()}

	if task.Protocol.SharesExamples() {
		request.Examples = participant.Client.Train.Len()
	}

	guard, printSummary, err := f.joinSecure(federation, conf, inv)
	if err != nil {
		return nil, nil, err
	}

	set := federation.Settings().Client
	set.Guard = guard
	if private && !f.insecureDP {
		own, err := noise.Open(filepath.Join(f.state, noiseFile), inv.Run, used)
		if err != nil {
			return nil, nil, err
		}
		set.Noise = func(int) *noise.Noise { return own }
	}

	worker := client.NewWorker(federation.Experiment, set)
	release = func() {
		printSummary()
		worker.Close()
		federation.Close()
	}

	if conf.Eval.ZeroShot {
		if found, err := worker.ZeroShot(ctx, []*spec.Client{participant.Client}); err == nil {
			for _, line := range record.ZeroShotWarnings(found) {
				log.Warn(line)
			}
		}
	}

	worker.PrepareTexts(ctx, participant.Client)
	executor := netclient.LocalExecutor{Worker: worker, Experiment: federation.Experiment, Client: participant.Client,
		Path: filepath.Join(f.state, record.PromptsFile)}
	if member, err = netclient.NewClient(inv, request, f.state, executor, log); err != nil {
		return nil, nil, err
	}

	resolved := task.Protocol.Config
	err = errors.Join(cli.WriteConfig(f.state, resolved), cli.WriteInfo(f.state, runfolder.DataFile, task.Info))
	if err != nil {
		return nil, nil, err
	}

	end, err := runfolder.Begin(ctx, f.state, resolved, task, &runfolder.Clock{Start: began})
	return member, func(failed error) error {
		release()
		return end(failed)
	}, err
}

// checkSameImages refuses images with another digest than those of the states in a client's folder.
func checkSameImages(dir, digest string) error {
	before, err := runfolder.ReadProvenance(dir)
	if err != nil || before.Data == nil || before.Data.Digest == digest {
		return err
	}
	return fmt.Errorf("%s has states of a training on other images (its %s describes them): start this client with "+
		"those, or with another --state", dir, runfolder.ProvenanceFile)
}

// open opens the data and the backbone of this client and takes the user's consent: the part of join before features
// are computed. The classes are those of the experiment, where they are known.
func (f joinFlags) open(ctx context.Context, conf experiment.Config, inv *netclient.Invitation, classes []string,
	display *progress.Display, log *slog.Logger) (*experiment.Task, error) {
	facts, err := f.checkRequirements(conf, inv, "this client's configuration")
	if err != nil && (f.differences == nil || facts == nil) {
		return nil, err
	}

	place := experiment.ClientPlace{Client: f.client, Of: inv.Clients, Partition: f.partition, Domain: f.domain,
		Classes: classes, SeededNoise: f.insecureDP && inv.InsecureDP}
	task, err := experiment.OpenClient(ctx, conf, place, display.Work)
	if err != nil {
		return nil, cli.AsUsage(err)
	}

	terms, own := f.terms(task, facts, inv)
	if err = f.fails(f.checkNoise(task.Protocol.Private(), inv, log)); err == nil {
		err = f.fails(f.consent().take(ctx, terms, own))
	}

	if err != nil {
		return nil, err
	}

	display.Opened(task)
	return task, nil
}

// checkNoise checks that both sides agree on the source of the noise of differential privacy. With --insecure-dp on
// both sides, the noise comes from the seed.
func (f joinFlags) checkNoise(private bool, inv *netclient.Invitation, log *slog.Logger) error {
	switch {
	case !private || !inv.InsecureDP && !f.insecureDP:
		return nil
	case !f.insecureDP:
		return errors.New("the server draws the noise of differential privacy from the seed, which everybody knows, " +
			"so it protects nothing (serve --insecure-dp); add --insecure-dp to take part anyway")
	case !inv.InsecureDP:
		return errors.New("--insecure-dp: the server wants noise that nobody else knows; leave the flag out")
	}

	log.Warn(seededNoise)
	return nil
}

// invitationFile is the file in the folder of a client with the configuration of the server.
const invitationFile = "invitation.yaml"

// configuration returns the configuration of the server, changed by that of this client.
func (f joinFlags) configuration(inv *netclient.Invitation) (experiment.Config, error) {
	if err := atomicfile.Write(filepath.Join(f.state, invitationFile), atomicfile.Bytes(inv.Config)); err != nil {
		return experiment.Config{}, err
	}

	conf, err := f.invited(inv)
	if err != nil {
		return conf, err
	}

	if err := f.fails(f.acceptFiles(methods.Files(conf.Options))); err != nil {
		return conf, err
	}

	if _, err := f.checkRequirements(conf, inv, "the server's configuration"); f.fails(err) != nil {
		return conf, err
	}

	err = change(&conf, f.config, f.sets)
	return conf, err
}

// change changes a configuration of another machine by the keys of this machine's file and flags.
func change(conf *experiment.Config, path string, sets []string) error {
	theirs := conf.Options
	conf.Options = nil
	if err := configs.DecodeOptionalFile(conf, path, sets); err != nil {
		return cli.Usage(err)
	}

	conf.Options = methods.MergeOptions(conf.Method, conf.With, theirs, conf.Options)
	return nil
}

// invited returns the configuration of the server.
func (f joinFlags) invited(inv *netclient.Invitation) (experiment.Config, error) {
	conf, err := configs.ParseText(filepath.Join(f.state, invitationFile), inv.Config)
	if err == nil {
		conf, err = conf.CheckInvitation()
	}

	if err != nil {
		err = fmt.Errorf("the server's configuration: %w", err)
	}

	return conf, err
}

// acceptFiles refuses a method from a file that --accept-method does not name, and saves it to be looked at.
func (f joinFlags) acceptFiles(files []layer.File) error {
	for _, file := range files {
		name, content, err := file.Content()
		if err != nil {
			return fmt.Errorf("the server's configuration: %w", err)
		}
		digest := layer.Digest(content)
		path := filepath.Join(f.state, "method-"+digest[:12]+".onnx")
		if err := atomicfile.Write(path, atomicfile.Bytes(content)); err != nil {
			return err
		}
		if !slices.Contains(f.accept, digest) {
			return fmt.Errorf("the server's method is the file %s (%s here): its graph reads this client's features "+
				"and labels and could copy them into what is sent; look at it, and accept it with --accept-method %s",
				name, path, digest)
		}
	}

	return nil
}
