package experiment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/bundle"
)

// ClientPlace is the place of this machine's client in an experiment.
type ClientPlace struct {
	Client, Of int
	// Partition gives the client its part of the configuration's data, as in a run in one process; otherwise all of the
	// data is the client's own.
	Partition   bool
	Domain      string   // of the client, for reports; of a partition's client, its own
	Classes     []string // of the experiment, where they are known; the client's data may have fewer
	SeededNoise bool     // both sides agreed to noise from the run's seed (--insecure-dp)
}

// alone reports whether the data of no other client are here.
func (p ClientPlace) alone() bool { return p.Of > 0 && !p.Partition }

// OpenClient is Open for one client of an experiment whose server is on another machine.
func OpenClient(ctx context.Context, c Config, p ClientPlace, progress Progress) (*Task, error) {
	if err := errors.Join(c.InOneProcess(), c.noAttack()); err != nil {
		return nil, err
	}
	return openTask(ctx, c, opening{role: remoteSide, place: p}, progress)
}

// openOwn opens data that belongs to one client: train and test as given, or a pool divided 60/20/20.
func openOwn(ctx context.Context, c Config, p ClientPlace, progress Progress) (*Data, error) {
	c.Backbones, c.Assign = c.assigned(p.Client + 1)[p.Client:], "cycle"
	d := &Data{config: c, total: p.Of}
	whole, err := d.openSet(ctx, p.Classes, progress)
	if err != nil {
		return nil, err
	}
	if err = d.split(partition.Config{Kind: "iid", Clients: 1}); err != nil {
		return nil, err
	}
	d.Parts[0].Domain = p.Domain
	d.config.Partition = partition.Defaults()
	d.config.Partition.Clients = p.Of
	if err := d.openEvaluationSets(ctx, whole, progress); err != nil {
		return nil, err
	}
	d.describeData()
	if d.config.Data.LabelNoise.Enabled() {
		d.Info.Notes = append(d.Info.Notes, "data.label_noise: it changes the labels of simulated clients only, not "+
			"those of this client; set data.label_noise.kind: none")
	}
	return d, nil
}

// relabel changes the labels of a set to those of an experiment, whose classes must include those of the set.
func relabel(s *data.Set, classes []string) error {
	to := make([]int, len(s.Classes))
	var unknown []string
	for i, name := range s.Classes {
		if to[i] = slices.Index(classes, name); to[i] < 0 {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		}
	}
	if len(unknown) > 0 {
		absent := slices.DeleteFunc(slices.Clone(classes), func(c string) bool { return slices.Contains(s.Classes, c) })
		return fmt.Errorf("the experiment has no class %s; its classes without a folder here are: %s; rename folders, "+
			"or use data.class_names", shortList(unknown), cmp.Or(shortList(absent), "none"))
	}
	for _, sp := range s.Splits() {
		for i := range *sp.Examples {
			(*sp.Examples)[i].Label = to[(*sp.Examples)[i].Label]
		}
	}
	s.Classes, s.Coarse, s.Superclasses = slices.Clone(classes), nil, nil
	return nil
}

// Participant is the client of this machine.
type Participant struct {
	Client   *spec.Client
	Task     method.ClientSpec
	Backbone string // digest of the backbone's files
	Tokens   string // digest of the text tokens of all classes
}

// Participant returns the client of a task of OpenClient.
func (f *Federation) Participant() (*Participant, error) {
	t := f.Task
	c := *f.Experiment.Clients[t.own()]
	c.ID = t.place.Client
	if err := engine.CheckClient(f.Experiment, &c); err != nil {
		return nil, err
	}
	if err := f.Experiment.CheckEvaluationSets(); err != nil {
		return nil, err
	}
	task := c.Backbone.Task()
	task.Backbone = c.Backbone.Name()
	b := t.Backbones.Assigned[t.own()]
	words, err := tokens(b, f.Experiment.Classes, f.Experiment.Template)
	return &Participant{Client: &c, Task: task, Backbone: b.Digest(), Tokens: words}, err
}

// Shares returns the parameters that the client of OpenClient uploads in every round, and those that stay with it, by
// the sizes of its backbone.
func (t *Task) Shares() (shares, keeps []method.Param) {
	b := Backbone{t.Backbones.Assigned[t.own()]}
	task := spec.TaskOf(b, t.place.Client, t.place.Of, len(t.Experiment.Classes))
	for _, x := range t.Experiment.Method.Params(task) {
		if x.Owner == method.Shared {
			shares = append(shares, x)
		} else {
			keeps = append(keeps, x)
		}
	}
	return shares, keeps
}

// Counts returns how many examples the client of OpenClient trains and is tested on.
func (t *Task) Counts() (train, test int) {
	return len(t.Data.trainedOn(t.own())), len(t.Data.Parts[t.own()].Test)
}

// own returns the index of the client of OpenClient among the clients of the data.
func (t *Task) own() int {
	if t.place.Partition {
		return t.place.Client
	}
	return 0
}

// tokens returns a digest of the token ids of all classes' texts for a backbone.
func tokens(f *bundle.Bundle, classes []string, template string) (string, error) {
	t, err := f.Tokenizer()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, c := range classes {
		for _, text := range []string{c, strings.ReplaceAll(template, "{}", c)} {
			ids, err := t.Encode(text)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(h, ids)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Clients is clients.json: the clients of a run, and how many examples of every class each has.
type Clients struct {
	Classes []string     `json:"classes"`
	Clients []ClientInfo `json:"clients"`
}

type ClientInfo struct {
	Backbone string `json:"backbone"`
	Domain   string `json:"domain,omitempty"`
	Train    []int  `json:"train"` // examples of each class
	Val      []int  `json:"val"`
	Test     []int  `json:"test"`
	New      bool   `json:"new,omitempty"` // it never trains; such clients come last
	// training examples that label noise gave a wrong label; train counts the right ones
	Noisy    int  `json:"wrong_labels,omitempty"`
	Attacker bool `json:"attacker,omitempty"` // of a simulated attack
}

// Known lists the clients that take part, in the order of lists by client: all but those that never train.
func (c Clients) Known() []ClientInfo {
	return slices.DeleteFunc(slices.Clone(c.Clients), func(k ClientInfo) bool { return k.New })
}

// Clients describes the clients of the task.
func (t *Task) Clients() Clients {
	set := t.Data.Set
	out := Clients{Classes: set.Classes}
	for i, p := range t.Data.Parts {
		p.Train = t.Data.trainedOn(i)
		train, val, test := p.Of(set)
		c := ClientInfo{Backbone: t.Backbones.Assigned[i].Name, Domain: p.Domain, Train: set.Counts(train),
			Val: set.Counts(val), Test: set.Counts(test), New: slices.Contains(t.Experiment.Plan.New, i),
			Attacker: t.Experiment.Attack.IsAttacker(i)}
		_, c.Noisy = t.Data.labels(i)
		out.Clients = append(out.Clients, c)
	}
	return out
}
