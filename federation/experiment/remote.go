package experiment

import (
	"errors"
	"fmt"

	"promptfed/federation/data"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/sets"
)

// OpenServer is Open for a server whose clients are on other machines: there is no data, no backbone and no class. The
// caller fills in the engine's classes, template and evaluation sets, once clients have sent them.
func OpenServer(c Config) (*Built, error) {
	c.Data.Config = withoutData(c.Data.Config)
	c.Eval.SetsRoot = ""
	if err := errors.Join(c.CheckWithoutData(), c.noAttack()); err != nil {
		return nil, err
	}
	b := &Built{Config: c, Set: &data.Set{}}
	if c.Data.Template == autoTemplate {
		b.Config.Data.Template = ""
	}
	if err := b.define(); err != nil {
		return nil, err
	}
	if err := c.InOneProcess(); err != nil {
		return nil, err
	}
	switch {
	case c.Reproduce != Defaults().Reproduce:
		return nil, errors.New("reproduce: clients on other machines have labels and class names of their own; use " +
			"promptfed run")
	case c.Train.Centralised:
		return nil, errors.New("train.centralised: clients on other machines keep their examples; use promptfed run")
	case c.Synthetic.Set != "" || methods.NeedsSynthetic(b.Method):
		return nil, errors.New("synthetic: a server whose clients are on other machines has no images of its own; " +
			"use promptfed run")
	case b.Engine.Evaluate.BestVal:
		return nil, errors.New("eval.select: best-val: clients on other machines keep what they learned last, not " +
			"what they had in the best round; set it to last (train.patience stops near the best round)")
	case c.Eval.Embeddings > 0:
		return nil, errors.New("eval.embeddings: a server whose clients are on other machines has no images; set it " +
			"to 0")
	}
	b.acrossMachines()
	return b, nil
}

// withoutData leaves of the section data what is part of the experiment and says nothing about files.
func withoutData(c sets.Config) sets.Config {
	d := sets.Defaults()
	d.Shots, d.Views = c.Shots, c.Views
	return d
}

// Agree fills in what the clients of a server agreed on.
func (b *Built) Agree(t spec.RunSpec) {
	b.Set.Classes, b.Engine.Classes = t.Classes, t.Classes
	b.Config.Data.Template, b.Engine.Template = t.Template, t.Template
	b.Engine.EvaluationSets = nil
	for _, name := range t.EvaluationSets {
		b.Engine.EvaluationSets = append(b.Engine.EvaluationSets, spec.EvaluationSet{Name: name})
	}
}

// Invitation is a server's configuration as clients get it: without data, folders and machine. Backbones keep their
// names only.
func (b *Built) Invitation() Config {
	c := b.Config
	d := Defaults()
	c.Runtime, c.Synthetic, c.Eval.SetsRoot = d.Runtime, d.Synthetic, ""
	if c.Data.Template == "" {
		c.Data.Template = autoTemplate
	}
	c.shortenBackbones()
	return c
}

// CheckInvitation makes a configuration from elsewhere safe to start from: nothing in it names a file of this machine.
func CheckInvitation(c Config) (Config, error) {
	d := Defaults()
	c.Runtime, c.Synthetic, c.Eval.SetsRoot, c.Train.Centralised = d.Runtime, d.Synthetic, "", false
	c.Data.Config, c.Eval.Embeddings, c.Attack = withoutData(c.Data.Config), 0, d.Attack
	if name := c.pathAmongBackbones(); name != "" {
		return c, fmt.Errorf("the server names the backbone %s, which is a path; name this client's backbone with "+
			"--set backbones=[NAME]", name)
	}
	return c, c.CheckWithoutData()
}
