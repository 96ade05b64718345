package experiment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/configtags"
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
func openOwn(ctx context.Context, c Config, place ClientPlace, progress Progress) (*Data, error) {
	c.Backbones, c.Assign = c.assigned(place.Client + 1)[place.Client:], "cycle"
	content := &Data{config: c, total: place.Of}
	whole, err := content.openSet(ctx, place.Classes, progress)
	if err != nil {
		return nil, err
	}

	if err = content.split(partition.Config{Kind: "iid", Clients: 1}); err != nil {
		return nil, err
	}

	content.Parts[0].Domain = place.Domain
	content.config.Partition = partition.Defaults()
	content.config.Partition.Clients = place.Of
	if err := content.openEvaluationSets(ctx, whole, progress); err != nil {
		return nil, err
	}

	content.describeData()
	if content.config.Data.LabelNoise.Enabled() {
		content.Info.Notes = append(content.Info.Notes, "data.label_noise: it changes the labels of simulated clients "+
			"only, not those of this client; set data.label_noise.kind: none")
	}

	return content, nil
}

// relabel changes the labels of a set to those of an experiment, whose classes must include those of the set.
func relabel(set *data.Set, classes []string) error {
	to := make([]int, len(set.Classes))
	absent := slices.DeleteFunc(slices.Clone(classes), func(c string) bool { return slices.Contains(set.Classes, c) })
	var unknown, entries []string // entries of data.class_names
	for i, name := range set.Classes {
		if to[i] = slices.Index(classes, name); to[i] < 0 {
			names := append(configtags.Similar(name, absent), "NAME")
			if len(absent) == 1 && len(set.Classes) == len(classes) { // one unknown name
				names = absent
			}
			unknown = append(unknown, fmt.Sprintf("%q", name))
			entries = append(entries, fmt.Sprintf("%q: %q", name, names[0]))
		}
	}

	if len(unknown) > 0 && len(absent) == 0 {
		return fmt.Errorf("the experiment has no class %s; it has no class without a folder here: take the folders of "+
			"other classes out of data.root", shortList(unknown))
	}

	if len(unknown) > 0 {
		return fmt.Errorf("the experiment has no class %s; its classes without a folder here are: %s; rename folders, "+
			"or use --set 'data.class_names={%s}'", shortList(unknown), shortList(absent), shortList(entries))
	}

	for _, sp := range set.Splits() {
		for i := range *sp.Examples {
			(*sp.Examples)[i].Label = to[(*sp.Examples)[i].Label]
		}
	}

	set.Classes, set.Coarse, set.Superclasses = slices.Clone(classes), nil, nil
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
	opened := f.Task
	client := *f.Experiment.Clients[opened.own()]
	client.ID = opened.place.Client
	if err := engine.CheckClient(f.Experiment, &client); err != nil {
		return nil, err
	}

	if err := f.Experiment.CheckEvaluationSets(); err != nil {
		return nil, err
	}

	task := client.Backbone.Task()
	task.Backbone = client.Backbone.Name()
	b := opened.OwnBackbone()
	words, err := tokens(b, f.Experiment.Classes, f.Experiment.Template)
	return &Participant{Client: &client, Task: task, Backbone: b.Digest(), Tokens: words}, err
}

// Shares returns the parameters that the client of OpenClient uploads in every round, and those that stay with it, by
// the sizes of its backbone.
func (t *Task) Shares() (shares, keeps []method.Param) {
	b := Backbone{t.OwnBackbone()}
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

// OwnBackbone returns the backbone of the client of OpenClient.
func (t *Task) OwnBackbone() *bundle.Bundle { return t.Backbones.Assigned[t.own()] }

// Counts returns how many examples the client of OpenClient trains and is tested on, and its classes with neither.
func (t *Task) Counts() (train, test int, without []string) {
	all := t.Clients()
	own := all.Clients[t.own()]
	for k, name := range all.Classes {
		train, test = train+own.Train[k], test+own.Test[k]
		if own.Train[k]+own.Val[k]+own.Test[k] == 0 {
			without = append(without, name)
		}
	}

	return train, test, without
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

	hash := sha256.New()
	for _, c := range classes {
		for _, text := range []string{c, strings.ReplaceAll(template, "{}", c)} {
			ids, err := t.Encode(text)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(hash, ids)
		}
	}

	return hex.EncodeToString(hash.Sum(nil)), nil
}

// Clients is clients.json: the clients of a run, and how many examples of every class each has.
type Clients struct {
	Classes []string     `json:"classes"`
	Clients []ClientInfo `json:"clients"`
}

// ClientInfo describes one client: its backbone, its domain, and its examples by class.
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
