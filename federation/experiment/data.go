package experiment

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/record"
	"promptfed/models/preprocess"
)

// Data is the data of an experiment: a set, partitioned among clients, and the evaluation sets.
type Data struct {
	Set   *data.Set
	Parts []partition.Client
	Info  DataInfo
	// Digest is the SHA-256, in hex, of content, split, class and domain of every image of the set: equal on all
	// machines with the same images, whatever the names and places of their files.
	Digest string

	config         Config // with the template of the set where it names none
	duplicates     data.Duplicates
	classNames     []string // of the set, as it has them: reproduce.class_names does not change them
	evaluationSets []evaluationSet
	pooled         []int // training examples of client 0 where it trains on all
	total          int   // clients of the experiment, where only one is here; 0 elsewhere
	validation     bool  // validation images stand in place of test images
}

// OpenData opens and partitions the data of a configuration.
func OpenData(ctx context.Context, c Config, progress Progress) (*Data, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return openData(ctx, c, false, progress)
}

// openData is OpenData of a checked configuration. With validation, the validation images of every set stand in place
// of its test images.
func openData(ctx context.Context, config Config, validation bool, progress Progress) (*Data, error) {
	content := &Data{config: config, validation: validation}
	whole, err := content.openSet(ctx, nil, progress)
	if err != nil {
		return nil, err
	}

	if err = content.split(config.Partition); err != nil {
		return nil, err
	}

	content.classNames = slices.Clone(content.Set.Classes)
	config.Reproduce.shuffleNames(content.Set, config.Seed)
	if err := content.openEvaluationSets(ctx, whole, progress); err != nil {
		return nil, err
	}

	config.Reproduce.misalign(content.Set, content.Parts, config.Seed)
	if err := content.openTriggered(); err != nil {
		return nil, err
	}

	if config.Train.Centralised {
		for _, p := range content.Parts {
			content.pooled = append(content.pooled, p.Train...)
		}
		slices.Sort(content.pooled)
		content.pooled = slices.Compact(content.pooled)
	}

	for _, defect := range config.Reproduces() {
		content.Set.Notes = append(content.Set.Notes, "reproduces a known defect of published code on purpose: "+defect)
	}

	content.describeData()
	return content, nil
}

// openSet opens the set, or the part of it that data.classes selects, and returns the whole set. Its labels become
// those of the given classes, if there are any.
func (d *Data) openSet(ctx context.Context, classes []string, progress Progress) (whole *data.Set, err error) {
	section := d.config.Data
	if whole, err = d.openImages(section.Config); err != nil {
		return nil, err
	}

	if whole.Pool == nil && len(whole.Train) == 0 {
		return nil, configtags.KeyErrorf("data.set", "%s has test images only: name it under eval.sets, or set "+
			"data.split: pooled to divide its images into training and test", section.Set)
	}

	if len(classes) > 0 && section.Classes == allClasses {
		if err := relabel(whole, classes); err != nil {
			return nil, err
		}
	}

	if err := d.dropUnreadable(ctx, whole, progress); err != nil {
		return nil, err
	}

	if err := d.findDuplicates(ctx, whole, progress); err != nil {
		return nil, err
	}

	if section.Template == autoTemplate {
		d.config.Data.Template = whole.Template
	}

	d.Set, err = partition.ClassSubset(whole, section.Classes)
	return whole, err
}

// openImages opens a set of images. OpenValidation has no test images of any set.
func (d *Data) openImages(c sets.Config) (*data.Set, error) {
	s, err := sets.Open(c)
	if err != nil || !d.validation {
		return s, err
	}

	if len(s.Val) == 0 {
		return nil, fmt.Errorf("%s has no validation images of its own, such as a folder val", c.Set)
	}

	s.Test, s.Val = s.Val, nil
	return s, nil
}

// dropUnreadable drops images that cannot be read, if the configuration says so.
func (d *Data) dropUnreadable(ctx context.Context, s *data.Set, progress Progress) error {
	if d.config.Data.Corrupt != data.Skip {
		return nil
	}
	return s.DropUnreadable(ctx, d.workers(), preprocess.Decode, progress.of("reading images"))
}

// trainList, valList and testList return the lists that the partition's indices refer to.
func (d *Data) trainList() []data.Example { return d.Set.PoolOr(d.Set.Train) }
func (d *Data) valList() []data.Example   { return d.Set.PoolOr(d.Set.Val) }
func (d *Data) testList() []data.Example  { return d.Set.PoolOr(d.Set.Test) }

func (d *Data) workers() int { return d.config.Runtime.workers() }

// clients returns how many clients the experiment has.
func (d *Data) clients() int { return cmp.Or(d.total, len(d.Parts)) }

// trainedOn returns the training examples of a client, as indices of trainList.
func (d *Data) trainedOn(client int) []int {
	if client == 0 && d.pooled != nil {
		return d.pooled
	}
	return d.Parts[client].Train
}

// labels returns the labels that a client trains on, before an attack, and how many of them label noise made wrong.
func (d *Data) labels(client int) (labels []int64, wrong int) {
	for _, i := range d.trainedOn(client) {
		labels = append(labels, int64(d.trainList()[i].Label))
	}

	noise := d.config.Data.LabelNoise
	if d.total > 0 || !noise.Noisy(len(d.Parts), d.config.Seed)[client] {
		return labels, 0
	}

	return noise.Apply(labels, len(d.Set.Classes), d.config.Seed, client)
}

// validating reports whether clients are tested on validation data; wanting it without having any is an error.
func (d *Data) validating() (bool, error) {
	some := slices.ContainsFunc(d.Parts, func(c partition.Client) bool { return len(c.Val) > 0 })
	if d.config.validated() && !some {
		return false, record.ErrNoValidation
	}
	return d.config.Eval.Validate && some, nil
}
