package experiment

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/privacy/secure"
	"promptfed/models/bundle"
	"promptfed/models/preprocess"
	"promptfed/runtime/numerics"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Built is an experiment that has been opened: its data, backbones, clients and method.
type Built struct {
	Config   Config
	Set      *data.Set
	Parts    []partition.Client
	Bundles  []*bundle.Bundle // distinct, in the order of Config.Backbones
	Assigned []*bundle.Bundle // of each client
	Method   method.Method
	Engine   *spec.Experiment // without clients until Features
	Info     DataInfo
	// DataDigest is the SHA-256, in hex, of content, split, class and domain of every image of the set: equal on all
	// machines with the same images, whatever the names and places of their files.
	DataDigest string

	options    []byte // of the method, in JSON
	duplicates data.Duplicates
	contents   map[string]data.ContentHash // of the images of the set, by ID
	classNames []string                    // of the set, as it has them: reproduce.class_names does not change them
	opened     map[string]*bundle.Bundle   // by name in Config.Backbones

	aggregation    *secure.Aggregation                 // of secure aggregation; nil for none
	guard          *secure.Guard                       // of the one client that is here; nil elsewhere
	wrap           func(message.Cohort) message.Cohort // of a server whose clients are on other machines; nil elsewhere
	of             int                                 // clients of the experiment, where only one is here; 0 elsewhere
	validation     bool                                // OpenValidation opened it
	synthetic      []data.Example                      // of the server's own
	evaluationSets []evaluationSet
	pooled         []int       // training examples of client 0 where it trains on all
	mapped         []io.Closer // files of the feature cache
	// Provider is the provider that ChooseProvider chose, empty before; Fallback is why auto chose the CPU.
	Provider string
	Fallback error
}

// Close releases the files of the feature cache. The engine's clients cannot be used any more.
func (b *Built) Close() error {
	var errs []error
	for _, f := range b.mapped {
		errs = append(errs, f.Close())
	}
	b.mapped = nil
	return errors.Join(errs...)
}

// Progress is called during long work.
type Progress func(what string, done, total int)

// of returns the progress of one thing; nil for a nil Progress.
func (p Progress) of(what string) func(done, total int) {
	if p == nil {
		return nil
	}
	return func(done, total int) { p(what, done, total) }
}

// Open checks a configuration, opens the data and the backbones, and partitions the examples. It computes no features.
func Open(ctx context.Context, c Config, progress Progress) (*Built, error) {
	return (&Built{Config: c}).open(ctx, progress)
}

// OpenValidation is Open with the validation images of every set in place of its test images, which nothing reads: what
// compares methods in order to choose one must not know the test images.
func OpenValidation(ctx context.Context, c Config, progress Progress) (*Built, error) {
	return (&Built{Config: c, validation: true}).open(ctx, progress)
}

func (b *Built) open(ctx context.Context, progress Progress) (*Built, error) {
	if err := b.openRun(ctx, progress); err != nil {
		return nil, err
	}
	if err := fits(b.Engine, b.Assigned); err != nil {
		return nil, err
	}
	return b, b.openSynthetic()
}

// fits returns an error for clients whose prompts do not fit their backbone or whose shared parameters cannot be
// averaged, before features are computed.
func fits(e *spec.Experiment, assigned []*bundle.Bundle) error {
	seen, shared := map[string]bool{}, message.SharedShapes{}
	for i, f := range assigned {
		task := spec.TaskOf(Backbone{f}, i, len(assigned), len(e.Classes))
		key := f.Name
		for _, p := range e.Method.Params(task) {
			key += fmt.Sprint(" ", p.Name, p.Shape)
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		if err := shared.Add(e.Method, task); err != nil {
			return err
		}
		if err := client.CheckGraphs(e, Backbone{f}, i, len(assigned)); err != nil {
			return err
		}
	}
	return nil
}

// openRun is open without the server's own images.
func (b *Built) openRun(ctx context.Context, progress Progress) error {
	if err := b.Config.Check(); err != nil {
		return err
	}
	b.Config.Runtime.Session().Preload() // while the data are opened
	if err := b.openData(ctx, progress); err != nil {
		return err
	}
	if err := b.define(); err != nil {
		return err
	}
	if err := b.openBackbones(ctx, progress); err != nil {
		return err
	}
	return b.centralise()
}

// define builds the method and the engine's experiment, without clients, for the classes of the data.
func (b *Built) define() error {
	r := &b.Config.Runtime
	r.Prepack, r.Spinning = named(r.Prepack), named(r.Spinning)
	c := b.Config
	stack, err := methods.Resolve(c.Method, c.With, c.Options)
	if err != nil {
		return err
	}
	b.Method, b.Config.Options = stack.Method, stack.Options
	b.Info.Notes = append(b.Info.Notes, methods.Notes(b.Method)...)
	if c.Sampling == poisson && !methods.HidesClients(b.Method) {
		return configtags.KeyErrorf("sampling", "poisson may draw no client, and the mean of no upload is undefined; "+
			"set sampling: fixed, or add dp to with")
	}
	if c.Train.State == sharedState && methods.HidesClients(b.Method) {
		return configtags.KeyErrorf("train.optimizer_state", "shared carries gradients of one client into the upload "+
			"of another, which differential privacy does not account for; set it to fresh")
	}
	if b.options, err = json.Marshal(methods.ShortOptions(b.Config.Options)); err != nil {
		return configtags.KeyErrorf("options", "%w", err)
	}
	b.Engine = &spec.Experiment{
		Name: c.Name, MethodName: strings.Join(append([]string{c.Method}, c.With...), "+"),
		Options:    string(b.options) + c.Train.lossTerm() + c.attackTerm(),
		Reproduces: c.Reproduces(),
		Method:     b.Method, Classes: b.Set.Classes, Template: b.Config.Data.Template,
		Precision: b.Config.Data.Precision, BatchClients: c.Runtime.BatchClients,
		Training: spec.Training{Epochs: c.Train.Epochs, Batch: c.Train.Batch, DropLast: c.Train.DropLast,
			FineTune: c.Eval.FineTune,
			Optim:    c.Train.optimizer(), Schedule: c.Train.Schedule,
			Overrides: c.Train.Each.perClient(c.Partition.Clients),
			Shared:    c.Train.State == sharedState, Memory: c.Train.memory()},
		Plan: spec.Plan{Rounds: c.Train.Rounds, Participation: c.Participation, Poisson: c.Sampling == poisson,
			TestEvery: c.Eval.Every, View: c.Eval.View, Seed: c.Seed},
	}
	b.Engine.Warnings = slices.Concat(methods.InactiveTerms(b.Method, c.Train.Rounds), c.Train.neverReached())
	b.Engine.Evaluate = c.Evaluation()
	if c.Eval.NewClients > 0 { // the last ones, where holdOutClients puts those that it draws
		all, n := tensor.Indices(c.Partition.Clients), c.Partition.Clients-c.Eval.NewClients
		b.Engine.Plan.Trainers, b.Engine.Plan.New = all[:n], all[n:]
	}
	if err := b.openAttack(); err != nil {
		return err
	}
	if c.Eval.Terms && (methods.HidesClients(b.Method) || c.SecureAggregation.Enabled()) {
		return configtags.KeyErrorf("eval.terms", "each client would report the norms of its own gradients, which "+
			"secure aggregation and differential privacy hide; use only one of the two")
	}
	b.describePrivacy()
	if err := b.simulateTime(); err != nil {
		return err
	}
	return b.openSecureAggregation()
}

// StepBytes returns the memory of all values of a client's largest training step or test, without gradients, before
// anything is computed.
func (b *Built) StepBytes() (most float64, err error) {
	for i, f := range b.Assigned {
		rows := max(b.Config.Train.Batch, len(b.Parts[i].Test))
		n, err := client.StepBytes(b.Engine, Backbone{f}, i, len(b.Assigned), rows)
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	return most, nil
}

// OpenData opens and partitions the data alone.
func OpenData(ctx context.Context, c Config, progress Progress) (*Built, error) {
	b := &Built{Config: c}
	return b, b.openData(ctx, progress)
}

func (b *Built) openData(ctx context.Context, progress Progress) error {
	c := b.Config
	whole, err := b.openSet(ctx, nil, progress)
	if err != nil {
		return err
	}
	if err = b.split(c.Partition); err != nil {
		return err
	}
	b.classNames = slices.Clone(b.Set.Classes)
	c.Reproduce.shuffleNames(b.Set, c.Seed)
	if err := b.openEvaluationSets(ctx, whole, progress); err != nil {
		return err
	}
	c.Reproduce.misalign(b.Set, b.Parts, c.Seed)
	if err := b.openTriggered(); err != nil {
		return err
	}
	for _, defect := range c.Reproduces() {
		b.Set.Notes = append(b.Set.Notes, "reproduces a known defect of published code on purpose: "+defect)
	}
	b.describeData()
	return nil
}

// openSet opens the set, or the part of it that data.classes selects, and returns the whole set. Its labels become
// those of the given classes, if there are any.
func (b *Built) openSet(ctx context.Context, classes []string, progress Progress) (whole *data.Set, err error) {
	c := b.Config.Data
	if whole, err = b.openImages(c.Config); err != nil {
		return nil, err
	}
	if whole.Pool == nil && len(whole.Train) == 0 {
		return nil, configtags.KeyErrorf("data.set", "%s has test images only: name it under eval.sets, or set "+
			"data.split: pooled to divide its images into training and test", c.Set)
	}
	if len(classes) > 0 && c.Classes == allClasses {
		if err := relabel(whole, classes); err != nil {
			return nil, err
		}
	}
	if err := b.dropUnreadable(ctx, whole, progress); err != nil {
		return nil, err
	}
	if err := b.findDuplicates(ctx, whole, progress); err != nil {
		return nil, err
	}
	if c.Template == autoTemplate {
		b.Config.Data.Template = whole.Template
	}
	b.Set, err = partition.ClassSubset(whole, c.Classes)
	return whole, err
}

// openImages opens a set of images. OpenValidation has no test images of any set.
func (b *Built) openImages(c sets.Config) (*data.Set, error) {
	s, err := sets.Open(c)
	if err != nil || !b.validation {
		return s, err
	}
	if len(s.Val) == 0 {
		return nil, fmt.Errorf("%s has no validation images of its own, such as a folder val", c.Set)
	}
	s.Test, s.Val = s.Val, nil
	return s, nil
}

// dropUnreadable drops images that cannot be read, if the configuration says so.
func (b *Built) dropUnreadable(ctx context.Context, s *data.Set, progress Progress) error {
	if b.Config.Data.Corrupt != data.Skip {
		return nil
	}
	return s.DropUnreadable(ctx, b.workers(), data.Skip, preprocess.Decode, progress.of("reading images"))
}

// trainList, valList and testList return the lists that the partition's indices refer to.
func (b *Built) trainList() []data.Example { return b.Set.PoolOr(b.Set.Train) }
func (b *Built) valList() []data.Example   { return b.Set.PoolOr(b.Set.Val) }
func (b *Built) testList() []data.Example  { return b.Set.PoolOr(b.Set.Test) }

func (b *Built) openBackbones(ctx context.Context, progress Progress) error {
	c := b.Config
	b.opened, b.Engine.Digests = map[string]*bundle.Bundle{}, map[string]string{}
	for _, name := range c.Backbones {
		if b.opened[name] != nil {
			continue
		}
		f, err := openBackbone(ctx, c, name, progress)
		if err != nil {
			return err
		}
		b.opened[name], b.Bundles = f, append(b.Bundles, f)
		b.Engine.Digests[f.Name] = f.Digest()
	}
	for _, name := range c.assigned(len(b.Parts)) {
		b.Assigned = append(b.Assigned, b.opened[name])
	}
	if line := toys(b.Bundles); line != "" {
		b.Info.Notes = append(b.Info.Notes, line)
	}
	for _, f := range b.Bundles {
		if f.Origin.Source != "" {
			b.Info.Notes = append(b.Info.Notes, f.Name+": "+f.Origin.String())
		}
		note, err := b.Engine.MemoryNote(Backbone{f}, c.Runtime.Session().WithProvider().Provider == ort.CPU)
		if err != nil {
			return fmt.Errorf("backbone %s: %w", f.Name, err)
		}
		if note != "" {
			b.Info.Notes = append(b.Info.Notes, f.Name+": "+note)
		}
		alike, err := b.readAlike(f)
		if err != nil {
			return err
		}
		spelled, err := spelledClasses(f, b.Set.Classes)
		if err != nil {
			return err
		}
		b.Info.Notes = append(append(b.Info.Notes, alike...), spelled...)
		if why := b.Engine.NotBatchable(Backbone{f}); why != "" {
			b.Info.Notes = append(b.Info.Notes, fmt.Sprintf("%s: runtime.batch_clients: %d has no effect, %s", f.Name,
				c.Runtime.BatchClients, why))
		}
	}
	return nil
}

// openBackbone opens a backbone for the loss of a configuration.
func openBackbone(ctx context.Context, c Config, name string, progress Progress) (*bundle.Bundle, error) {
	f, err := findBackbone(ctx, name, c.Runtime.Models, progress)
	if err != nil {
		return nil, configtags.KeyErrorf("backbones", "%w", err)
	}
	f.Sigmoid = c.Train.Loss == sigmoidLoss
	if f.Sigmoid && f.AssumedScale {
		return nil, fmt.Errorf("backbone %s: its files lack the logit scale and bias that train.loss: sigmoid needs: "+
			"write backbones: [{folder: %s, logit_scale: NUMBER, logit_bias: NUMBER}], or add the "+
			"model.safetensors or model.onnx of the whole model", f.Name, f.Dir)
	}
	return f, nil
}

// assigned returns the backbones of the first n clients.
func (c Config) assigned(n int) []string {
	out, r := make([]string, n), method.Rand(c.Seed, "backbones")
	for i := range out {
		k := i % len(c.Backbones)
		if c.Assign == "random" {
			k = r.IntN(len(c.Backbones))
		}
		out[i] = c.Backbones[k]
	}
	return out
}

func (b *Built) workers() int { return b.Config.Runtime.workers() }

// ChooseProvider chooses the provider, before any work that needs it. Without it, each session chooses for itself.
func (b *Built) ChooseProvider() error {
	r := b.Config.Runtime
	why, err := r.ChooseProvider()
	if err == nil {
		b.Provider, b.Fallback = r.Provider, why
	}
	return err
}

// runtime returns the section runtime with the provider of ChooseProvider.
func (b *Built) runtime() Runtime {
	r := b.Config.Runtime
	if b.Provider == ort.CPU {
		r.MemoryLimit, r.Devices = 0, 1
	}
	if b.Provider != "" {
		r.Provider = b.Provider
	}
	return r
}

// Numerics returns what decides the last bits of training steps and tests besides the experiment. Features depend on
// only a part of it (features.Extractor).
func (b *Built) Numerics() (numerics.Fingerprint, error) { return b.runtime().Session().Fingerprint() }

// Extractor computes features as the configuration says.
func (b *Built) Extractor(progress Progress) (features.Extractor, error) {
	dir, err := FeatureCache(b.Config.Runtime.Cache)
	if err != nil {
		return features.Extractor{}, err
	}
	x := features.Extractor{Cache: data.Cache{Dir: dir, Precision: b.Config.Data.Precision},
		Session: b.runtime().Session(), Workers: b.workers(), Seed: b.Config.Seed}
	if progress != nil {
		x.Progress = func(bundle string, done, total int) { progress("features of "+bundle, done, total) }
	}
	return x, nil
}

// Features computes the features of every client and fills in the engine's clients. Close releases them.
func (b *Built) Features(ctx context.Context, progress Progress) (err error) {
	defer func() {
		if err != nil {
			err = b.Set.AllUnreadable(ctx, b.workers(), preprocess.Decode, err)
			b.Close()
		}
	}()
	x, err := b.Extractor(progress)
	if err != nil {
		return err
	}
	validating, err := b.validating()
	if err != nil {
		return err
	}
	if _, err := b.Storage(ctx); err != nil {
		return err
	}
	clients := make([]*spec.Client, len(b.Parts))
	for _, f := range b.Bundles {
		train, err := b.featuresOf(ctx, x, f, b.trainList(), b.Config.Data.Views)
		if err != nil {
			return err
		}
		test, err := b.featuresOf(ctx, x, f, b.testList(), 1)
		if err != nil {
			return err
		}
		var val *spec.Features
		if validating {
			if val, err = b.featuresOf(ctx, x, f, b.valList(), 1); err != nil {
				return err
			}
		}
		for i, part := range b.Parts {
			if b.Assigned[i] != f {
				continue
			}
			own, err := b.training(ctx, x, f, train, i)
			if err != nil {
				return err
			}
			clients[i] = &spec.Client{ID: i, Backbone: Backbone{f}, Domain: part.Domain, Train: own,
				Test: test.Pick(part.Test)}
			if validating {
				clients[i].Val = val.Pick(part.Val)
			}
		}
	}
	if err := b.syntheticFeatures(ctx, x); err != nil {
		return err
	}
	b.Engine.Clients = clients
	return b.evaluationFeatures(ctx, x)
}

// Storage returns what Features will write, and an error if there is no room for it.
func (b *Built) Storage(ctx context.Context) (features.Storage, error) {
	x, err := b.Extractor(nil)
	if err != nil {
		return features.Storage{}, err
	}
	validating, err := b.validating()
	if err != nil {
		return features.Storage{}, err
	}
	return x.Storage(ctx, b.requests(validating))
}

func (b *Built) requests(validating bool) (out []features.Request) {
	add := func(f *bundle.Bundle, list []data.Example, views int) {
		out = append(out, b.requestsOf(f, list, views)...)
	}
	for _, f := range b.Bundles {
		add(f, b.trainList(), b.Config.Data.Views)
		add(f, b.testList(), 1)
		if validating {
			add(f, b.valList(), 1)
		}
		for _, p := range b.evaluationSets {
			add(f, p.examples, 1)
		}
		for i := range b.Parts {
			if list, _ := b.poisoned(i); b.Assigned[i] == f && len(list) > 0 {
				add(f, list, b.Config.Data.Views)
			}
		}
	}
	if len(b.synthetic) > 0 {
		add(b.Bundles[0], b.synthetic, 1)
	}
	return out
}

// requestsOf lists the inputs that the method reads of a list of images.
func (b *Built) requestsOf(f *bundle.Bundle, list []data.Example, views int) (out []features.Request) {
	for _, what := range append(b.Engine.Reads(Backbone{f}), method.ImageInput) {
		out = append(out, features.Request{Bundle: f, List: list, Views: views, What: what})
	}
	return out
}

// featuresOf computes the inputs that the method reads of a list of images.
func (b *Built) featuresOf(ctx context.Context, x features.Extractor, f *bundle.Bundle, list []data.Example,
	views int) (*spec.Features, error) {
	out := &spec.Features{}
	for _, y := range data.Labels(list) {
		out.Class = append(out.Class, int64(y))
	}
	for _, r := range b.requestsOf(f, list, views) {
		views, err := x.Rows(ctx, r)
		if err != nil {
			return nil, err
		}
		var rows []spec.RowReader
		for _, v := range views {
			rows = append(rows, v)
			b.mapped = append(b.mapped, v)
		}
		out.Add(r.What, rows)
	}
	return out, nil
}

// EmbeddingsFile is a file of a run folder: by backbone B, the features of some test images, B/image [N,D] with B/label
// [N], and those of the classes, B/text/start [C,D] before round 0 and B/text/end [C,D] after the last. All rows are
// unit rows.
const EmbeddingsFile = "embeddings.safetensors"

// TestFeatures computes the inputs that the method reads of the test images, by one backbone.
func (b *Built) TestFeatures(ctx context.Context, f *bundle.Bundle, progress Progress) (*spec.Features, error) {
	x, err := b.Extractor(progress)
	if err != nil {
		return nil, err
	}
	return b.featuresOf(ctx, x, f, b.testList(), 1)
}

// Settings returns the engine's settings of a configuration; the caller adds folder, tracing and progress.
func (b *Built) Settings() engine.Settings {
	s := engine.Settings{Client: client.Settings{Session: b.runtime().Session(), Terms: b.Config.Eval.Terms,
		Texts: b.keptTexts}, Workers: b.workers(), Provider: b.Provider}
	switch {
	case b.guard != nil:
		s.Client.Guard = b.guard
	case b.wrap != nil:
		s.Wrap = b.wrap
	case b.aggregation != nil:
		s.Client.Guard, s.Wrap = b.aggregation.Guard(), b.aggregation.Wrap
	}
	if b.Fallback != nil {
		s.Provider += ": " + b.Fallback.Error()
	}
	return s
}

// keptTexts keeps features of hand-written texts in the feature cache (client.Settings.Texts).
func (b *Built) keptTexts(key [sha256.Size]byte, shape []int, compute func() (*tensor.Tensor, error)) (*tensor.Tensor,
	error) {
	dir, err := FeatureCache(b.Config.Runtime.Cache)
	if err != nil {
		return nil, err
	}
	m, err := data.Cache{Dir: dir, Precision: data.Float}.Matrix(key, shape, shape[0])
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if len(m.Missing()) == 0 {
		return m.Read(tensor.Indices(shape[0]))
	}
	t, err := compute()
	if err == nil && t.NonFinite() < 0 {
		_ = m.Append(t) // the next run computes them again where the folder cannot be written
	}
	return t, err
}

// simulateTime sets the speeds of the clients of the engine's experiment.
func (b *Built) simulateTime() error {
	c := b.Config
	if k := c.SimulatedTime.FedBuff.Buffer; k > 0 {
		if err := methods.CheckBuffered(b.Method); err != nil {
			return &configtags.KeyError{Key: "simulated_time.fedbuff.buffer", Err: fmt.Errorf(
				"simulated_time.fedbuff: %w", err)}
		}
		if n := int(b.sampling().Size); k > n {
			return configtags.KeyErrorf("simulated_time.fedbuff.buffer", "%d uploads never accumulate where %d "+
				"clients train at the same time; set %d or fewer, or raise participation", k, n, n)
		}
	}
	var err error
	b.Engine.SimulatedTime, err = c.SimulatedTime.Plan(b.clients(), c.Seed)
	return err
}
