package experiment

import (
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
	Partition bool
	Domain    string   // of the client, for reports; of a partition's client, its own
	Classes   []string // of the experiment, where they are known; the client's data may have fewer
}

// OpenClient is Open for one client of an experiment whose server is on another machine.
func OpenClient(ctx context.Context, c Config, p ClientPlace, progress Progress) (*Built, error) {
	if err := errors.Join(c.InOneProcess(), c.noAttack()); err != nil {
		return nil, err
	}
	if p.Partition {
		b, err := Open(ctx, c, progress)
		if err == nil && len(b.Parts) != p.Of {
			err = fmt.Errorf("the partition has %d clients, but the server has %d; use the data, partition and seed "+
				"that the server was started with", len(b.Parts), p.Of)
		}
		if err == nil {
			b.acrossMachines()
		}
		return b, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	c.Backbones, c.Assign = c.assigned(p.Client + 1)[p.Client:], "cycle"
	b := &Built{Config: c, of: p.Of}
	if err := b.openOwn(ctx, p, progress); err != nil {
		return nil, err
	}
	if err := b.define(); err != nil {
		return nil, err
	}
	b.acrossMachines()
	return b, b.openBackbones(ctx, progress)
}

// openOwn opens data that belongs to one client: train and test as given, or a pool divided 60/20/20.
func (b *Built) openOwn(ctx context.Context, p ClientPlace, progress Progress) error {
	whole, err := b.openSet(ctx, p.Classes, progress)
	if err != nil {
		return err
	}
	if err = b.split(partition.Config{Kind: "iid", Clients: 1}); err != nil {
		return err
	}
	b.Parts[0].Domain = p.Domain
	b.Config.Partition = partition.Defaults()
	b.Config.Partition.Clients = p.Of
	if err := b.openEvaluationSets(ctx, whole, progress); err != nil {
		return err
	}
	b.describeData()
	if b.Config.Data.LabelNoise.Enabled() {
		b.Info.Notes = append(b.Info.Notes, "data.label_noise: it changes the labels of simulated clients only, not "+
			"those of this client; set data.label_noise.kind: none")
	}
	return nil
}

// relabel changes the labels of a set to those of an experiment, whose classes must include those of the set.
func relabel(s *data.Set, classes []string) error {
	to := make([]int, len(s.Classes))
	for i, name := range s.Classes {
		if to[i] = slices.Index(classes, name); to[i] < 0 {
			return fmt.Errorf("class %q is not one of the experiment's, which are %s; rename its folder, or use "+
				"data.class_names", name, strings.Join(classes, ", "))
		}
	}
	for _, sp := range s.Splits() {
		for i := range *sp.Examples {
			(*sp.Examples)[i].Label = to[(*sp.Examples)[i].Label]
		}
	}
	s.Classes, s.Coarse, s.Superclasses = slices.Clone(classes), nil, nil
	return nil
}

// Participant is the client of this machine, after Features.
type Participant struct {
	Client   *spec.Client
	Task     method.ClientSpec
	Backbone string // digest of the backbone's files
	Tokens   string // digest of the text tokens of all classes
}

// Participant returns the client of a place, after Features.
func (b *Built) Participant(p ClientPlace) (*Participant, error) {
	i := b.index(p)
	c := *b.Engine.Clients[i]
	c.ID = p.Client
	if err := engine.CheckClient(b.Engine, &c); err != nil {
		return nil, err
	}
	if err := b.Engine.CheckEvaluationSets(); err != nil {
		return nil, err
	}
	task := c.Backbone.Task()
	task.Backbone = c.Backbone.Name()
	out := &Participant{Client: &c, Task: task, Backbone: b.Assigned[i].Digest()}
	var err error
	out.Tokens, err = tokens(b.Assigned[i], b.Engine.Classes, b.Engine.Template)
	return out, err
}

// Shares returns the parameters that a client of a place uploads in every round, and Keeps those that stay with it, by
// the sizes of its backbone; it needs no features.
func (b *Built) Shares(p ClientPlace) (shares, keeps []method.Param) {
	i := b.index(p)
	t := spec.TaskOf(Backbone{b.Assigned[i]}, p.Client, p.Of, len(b.Engine.Classes))
	for _, x := range b.Method.Params(t) {
		if x.Owner == method.Shared {
			shares = append(shares, x)
		} else {
			keeps = append(keeps, x)
		}
	}
	return shares, keeps
}

// Counts returns how many examples the client of a place trains and is tested on.
func (b *Built) Counts(p ClientPlace) (train, test int) {
	i := b.index(p)
	return len(b.trainedOn(i)), len(b.Parts[i].Test)
}

// index returns the index of a place's client among the clients on this machine.
func (b *Built) index(p ClientPlace) int {
	if p.Partition {
		return p.Client
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

func (b *Built) Clients() Clients {
	out := Clients{Classes: b.Set.Classes}
	for i, p := range b.Parts {
		p.Train = b.trainedOn(i)
		train, val, test := p.Of(b.Set)
		c := ClientInfo{Domain: p.Domain, Train: b.Set.Counts(train), Val: b.Set.Counts(val), Test: b.Set.Counts(test)}
		if i < len(b.Assigned) {
			c.Backbone = b.Assigned[i].Name
		}
		_, c.Noisy = b.labels(i)
		if b.Engine != nil {
			c.New = slices.Contains(b.Engine.Plan.New, i)
			c.Attacker = b.Engine.Attack.IsAttacker(i)
		}
		out.Clients = append(out.Clients, c)
	}
	return out
}
