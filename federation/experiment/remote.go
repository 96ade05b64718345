package experiment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/models/bundle"
	"promptfed/runtime/version"
)

// OpenServer returns the protocol of a server whose clients are on other machines: it has no data, no backbone, and no
// classes before RunsAs.
func OpenServer(config Config, seededNoise bool) (*Protocol, error) {
	config.Data.Config = sets.Defaults() // it names no files
	config.Eval.SetsRoot = ""
	if err := errors.Join(config.CheckWithoutData(), config.noAttack()); err != nil {
		return nil, err
	}

	if config.Data.Template == autoTemplate {
		config.Data.Template = ""
	}

	protocol, err := newProtocol(config, members{role: remoteSide, clients: config.Partition.Clients,
		seededNoise: seededNoise})
	if err != nil {
		return nil, err
	}

	return protocol, cmp.Or(config.InOneProcess(),
		configtags.Need(config.Reproduce == Defaults().Reproduce, "reproduce", "clients on other machines have labels "+
			"and class names of their own; use promptfed run"),
		configtags.Need(!config.Train.Centralised, "train.centralised", "clients on other machines keep their "+
			"examples; use promptfed run"),
		configtags.Need(config.Synthetic.Set == "" && !methods.NeedsSynthetic(protocol.Experiment.Method), "synthetic",
			"a server whose clients are on other machines has no images of its own; use promptfed run"),
		configtags.Need(!config.SimulatedTime.Enabled(), "simulated_time.speeds", "clients on other machines take "+
			"real time; use promptfed run"),
		configtags.Need(!protocol.Experiment.Evaluate.BestVal, "eval.select", "best-val: clients on other machines "+
			"keep what they learned last, not what they had in the best round; set it to last (train.patience stops "+
			"near the best round)"),
		configtags.Need(config.Eval.Embeddings == 0, "eval.embeddings", "a server whose clients are on other machines "+
			"has no images; set it to 0"))
}

// OwnBackbones returns the backbones of a server's configuration whose files are on this machine, and the names of the
// others. Files that cannot be used are an error: they were given to decide.
func (c Config) OwnBackbones() (own []spec.OwnBackbone, others []string, err error) {
	for i, name := range c.Backbones {
		if slices.Contains(c.Backbones[:i], name) {
			continue
		}
		f, err := bundle.Find(name, c.Runtime.Models)
		if errors.Is(err, bundle.ErrNotFound) || errors.Is(err, bundle.ErrNotPulled) {
			others = append(others, bundle.ShortName(name))
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		f.Sigmoid = c.Train.Loss == sigmoidLoss
		o := spec.OwnBackbone{Dir: f.Dir, Task: Backbone{f}.Task(), Digest: f.Digest(),
			Tokens: func(classes []string, template string) (string, error) { return tokens(f, classes, template) }}
		o.Task.Backbone = f.Name
		own = append(own, o)
	}

	return own, others, nil
}

// Invitation returns a server's configuration for clients: without data, folders and machine. Of backbones it has only
// the names.
func (c Config) Invitation() Config {
	d := Defaults()
	c.Runtime, c.Synthetic, c.Eval.SetsRoot = d.Runtime, d.Synthetic, ""
	if c.Data.Template == "" {
		c.Data.Template = autoTemplate
	}
	c.shortenBackbones()
	return c
}

// CheckInvitation returns a configuration from another machine in which nothing names a file of this machine.
func (c Config) CheckInvitation() (Config, error) {
	d := Defaults()
	c.Runtime, c.Synthetic, c.Eval.SetsRoot, c.Train.Centralised = d.Runtime, d.Synthetic, "", false
	c.Data.Config, c.Eval.Embeddings, c.Attack, c.SimulatedTime = d.Data.Config, 0, d.Attack, d.SimulatedTime
	if name := c.pathAmongBackbones(); name != "" {
		return c, fmt.Errorf("the server names the backbone %s, which is a path; name this client's backbone with "+
			"--set backbones=[NAME]", name)
	}

	return c, errors.Join(c.namesNoFile(), c.CheckWithoutData())
}

// namesNoFile returns an error where an option names a file of this machine.
func (c Config) namesNoFile() error {
	_, err := methods.EmbedFiles(c.Method, c.Options, func(path string) ([]byte, error) {
		return nil, fmt.Errorf("%.100q is a path; a configuration of another machine must hold its files", path)
	})
	return err
}

// Shared returns a run's configuration for its workers: the same experiment, without folders, machine and
// settings of the run alone. Of backbones it has only the names.
func (c Config) Shared() Config {
	d := Defaults()
	c.Runtime, c.Synthetic, c.SecureAggregation = d.Runtime, d.Synthetic, d.SecureAggregation
	c.SimulatedTime = d.SimulatedTime
	c.Data.Root, c.Eval.SetsRoot, c.Eval.Embeddings = "", "", 0
	c.shortenBackbones()
	return c
}

// shortenBackbones replaces backbones, which may be folders of this machine, by their names.
func (c *Config) shortenBackbones() {
	c.Backbones = slices.Clone(c.Backbones)
	for i, name := range c.Backbones {
		c.Backbones[i] = bundle.ShortName(name)
	}
}

// pathAmongBackbones returns the first backbone that is a path; "" without one.
func (c Config) pathAmongBackbones() string {
	for _, name := range c.Backbones {
		if name == "" || name != bundle.ShortName(name) || name == ".." || name == "." {
			return fmt.Sprintf("%.60q", name)
		}
	}
	return ""
}

// CheckShared returns a configuration of another machine's run in which nothing names a file of this machine.
func (c Config) CheckShared() (Config, error) {
	if name := c.pathAmongBackbones(); name != "" {
		return c, fmt.Errorf("the run names the backbone %s, which is a path; a worker accepts names only", name)
	}
	return c.Shared(), c.namesNoFile()
}

// OpenWorker is Open for a machine that runs clients of a simulation on another machine. The server's own images and
// secure aggregation stay on that machine.
func OpenWorker(ctx context.Context, c Config, progress Progress) (*Task, error) {
	c.Synthetic, c.SecureAggregation = Defaults().Synthetic, Defaults().SecureAggregation
	return openTask(ctx, c, opening{role: workerSide}, progress)
}

// Compatibility returns what workers must have in common with this experiment.
func (f *Federation) Compatibility(ctx context.Context) (spec.Compatibility, error) {
	task, experiment := f.Task, *f.Experiment
	content := task.Data
	experiment.Options, experiment.Secure = task.Protocol.Experiment.Options, "" // without the server's own images
	experiment.SimulatedTime = nil                                               // the server's affair, too
	out := spec.Compatibility{Program: version.String(), Fingerprint: experiment.Fingerprint(),
		RunSpec: experiment.RunSpec(), Digests: map[string]string{}}
	var err error
	if out.Numerics, err = task.Numerics(); err != nil {
		return out, err
	}

	for _, b := range task.Backbones.Distinct {
		text, err := tokens(b, experiment.Classes, experiment.Template)
		if err != nil {
			return out, err
		}
		out.Digests["backbone "+b.Name] = b.Digest()
		out.Digests["text tokens of "+b.Name] = text
	}

	lists := map[string][]data.Example{"training data": content.trainList(), "test data": content.testList()}
	if list := content.valList(); len(list) > 0 {
		lists["validation data"] = list
	}

	for _, s := range content.evaluationSets {
		if !s.other {
			lists["evaluation set "+s.name] = s.examples
			continue
		}
		if lists["evaluation set "+s.name], err = content.hashed(ctx, s.examples, nil); err != nil {
			return out, fmt.Errorf("evaluation set %s: %w", s.name, err)
		}
	}

	for what, list := range lists {
		out.Digests[what] = inOrder(list)
	}

	h := sha256.New()
	for i, p := range content.Parts {
		fmt.Fprintln(h, i, p.Domain, content.trainedOn(i), p.Val, p.Test, task.Backbones.Assigned[i].Name)
	}

	for _, s := range content.evaluationSets {
		fmt.Fprintf(h, "%q %q %q\n", s.name, s.classes, s.template)
	}

	out.Digests["partition"] = hex.EncodeToString(h.Sum(nil))
	return out, nil
}

// inOrder returns a digest of a list of examples that is equal on all machines: of their names, labels, domains and
// contents, in their order.
func inOrder(list []data.Example) string {
	h := sha256.New()
	for _, e := range list {
		fmt.Fprintf(h, "%q %d %d %x\n", filepath.ToSlash(e.ID), e.Label, e.Domain, e.ContentHash)
	}
	return hex.EncodeToString(h.Sum(nil))
}
