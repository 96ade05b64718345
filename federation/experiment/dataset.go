package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/data"
)

// DataInfo is data.json: the findings about a run's data.
type DataInfo struct {
	Set        string          `json:"set"`
	Layout     string          `json:"layout,omitempty"` // how its files lie
	Classes    int             `json:"classes"`
	Domains    []string        `json:"domains,omitempty"`
	Splits     []SplitInfo     `json:"splits"`
	LeftOut    int             `json:"left_out"` // images that cannot be read (data.corrupt: skip)
	Duplicates data.Duplicates `json:"duplicates"`
	Clients    SharedImages    `json:"client_duplicates"`
	// what clients are tested on beside their own test data
	EvaluationSets []EvaluationSetInfo `json:"sets,omitempty"`
	Notes          []string            `json:"notes,omitempty"`
}

// EvaluationSetInfo counts the images and classes of one evaluation set.
type EvaluationSetInfo struct {
	Name    string `json:"name"`
	Images  int    `json:"images"`
	Classes int    `json:"classes"`
}

// SplitInfo counts the images of one split before the partition into clients.
type SplitInfo struct {
	Name     string `json:"name"` // train, val, test or pool
	Images   int    `json:"images"`
	Least    int    `json:"least"` // images of a class
	Most     int    `json:"most"`
	Without  int    `json:"classes_without"`     // classes that have no image in it
	ByDomain []int  `json:"by_domain,omitempty"` // images of each domain
}

// SharedImages counts equal images after the partition.
type SharedImages struct {
	OwnTest int `json:"own_test"` // test images of clients that are also training images of the same client
	Across  int `json:"across"`   // images that several clients train on, as different examples
}

func describe(set *data.Set, d data.Duplicates) DataInfo {
	out := DataInfo{Set: set.Name, Layout: set.Layout, Classes: len(set.Classes), Domains: set.Domains,
		LeftOut: len(set.Skipped), Duplicates: d, Notes: slices.Clone(set.Notes)}
	for _, sp := range set.Splits() {
		counts := set.Counts(*sp.Examples)
		one := SplitInfo{Name: sp.Name, Images: len(*sp.Examples), Least: slices.Min(counts), Most: slices.Max(counts)}
		for _, n := range counts {
			if n == 0 {
				one.Without++
			}
		}

		if len(set.Domains) > 0 {
			one.ByDomain = make([]int, len(set.Domains))
			for _, e := range *sp.Examples {
				one.ByDomain[e.Domain]++
			}
		}

		out.Splits = append(out.Splits, one)
	}

	return out
}

// Lines returns the same for people, without the notes.
func (i DataInfo) Lines() []string {
	first := "data: " + i.Set
	if i.Layout != "" {
		first += ", " + i.Layout
	}

	first += ": " + CountInWords(i.Classes, "class")
	if n := len(i.Domains); n > 0 {
		first += fmt.Sprintf(", %s (%s)", CountInWords(n, "domain"), shortList(i.Domains))
	}

	var sizes []string
	for _, sp := range i.Splits {
		text := fmt.Sprintf("%s %s (%d to %d of a class", sp.Name, CountInWords(sp.Images, "image"), sp.Least, sp.Most)
		if sp.Least == sp.Most {
			text = fmt.Sprintf("%s %s (%d of each class", sp.Name, CountInWords(sp.Images, "image"), sp.Most)
		}
		if sp.Without > 0 {
			text += ", none of " + CountInWords(sp.Without, "class")
		}
		sizes = append(sizes, text+")")
	}

	out := []string{first, "data: " + strings.Join(sizes, ", ")}
	if len(i.EvaluationSets) > 0 {
		var names []string
		for _, e := range i.EvaluationSets {
			names = append(names, fmt.Sprintf("%s (%s of %s)", e.Name, CountInWords(e.Images, "image"),
				CountInWords(e.Classes, "class")))
		}
		out = append(out, "data: also tested on "+strings.Join(names, ", "))
	}

	return out
}

// CountInWords returns a number of things in words, such as 1 class or 2 classes.
func CountInWords(n int, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "s"):
		thing += "es"
	default:
		thing += "s"
	}

	return fmt.Sprint(n, " ", thing)
}

func shortList(names []string) string {
	if len(names) > 8 {
		return strings.Join(names[:8], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// contents returns the content hashes of some images, with the feature cache as their store.
func (d *Data) contents(ctx context.Context, list []data.Example, progress Progress) ([]data.ContentHash, error) {
	dir, err := d.config.Runtime.FeatureCache()
	if err != nil { // no place to remember it
		dir = ""
	}
	return data.Cache{Dir: dir}.ContentHashes(ctx, list, d.workers(), progress.of("reading images"))
}

// hashed returns a list with the content hashes of its images.
func (d *Data) hashed(ctx context.Context, list []data.Example, progress Progress) ([]data.Example, error) {
	contents, err := d.contents(ctx, list, progress)
	list = slices.Clone(list)
	for i, c := range contents {
		list[i].ContentHash = c
	}
	return list, err
}

// findDuplicates compares the images of a set and treats duplicates as data.duplicates says.
func (d *Data) findDuplicates(ctx context.Context, set *data.Set, progress Progress) error {
	var list []data.Example
	for _, sp := range set.Splits() {
		list = append(list, *sp.Examples...)
	}

	contents, err := d.contents(ctx, list, progress)
	if err != nil {
		return err
	}

	pooled := set.Pool != nil
	policy := d.config.Data.Duplicates
	if d.duplicates, err = set.FindDuplicates(contents, policy); err != nil {
		return err
	}

	var all images
	for _, sp := range set.Splits() {
		all.add(*sp.Examples, sp.Name, set.Classes, set.Domains)
	}

	d.Digest = all.String()
	for k, line := range d.duplicates.Lines(pooled) {
		if k == 0 {
			line += " (such as " + d.duplicates.Example + ")"
		}
		set.Notes = append(set.Notes, line)
	}

	switch d := d.duplicates; {
	case d.Dropped > 0:
		set.Notes = append(set.Notes, fmt.Sprintf("data.duplicates: drop removed %d images", d.Dropped))
	case d.TrainTest+d.TrainVal+d.ValTest > 0 || pooled && d.Repeated > 0:
		set.Notes = append(set.Notes, "data.duplicates: keep leaves these images in place; drop removes them, error "+
			"refuses the set")
	}

	return nil
}

// countShared counts equal images of the clients' lists.
func (d *Data) countShared() SharedImages {
	var out SharedImages
	trained := map[data.ContentHash]map[int]string{} // by client, the example
	lists := make([][3][]data.Example, len(d.Parts))
	for k, p := range d.Parts {
		lists[k][0], lists[k][1], lists[k][2] = p.Of(d.Set)
		for _, e := range lists[k][0] {
			if trained[e.ContentHash] == nil {
				trained[e.ContentHash] = map[int]string{}
			}
			trained[e.ContentHash][k] = e.ID
		}
	}

	for k := range d.Parts {
		for _, e := range lists[k][2] {
			if trained[e.ContentHash][k] != "" {
				out.OwnTest++
			}
		}
	}

	for _, clients := range trained {
		ids := map[string]bool{}
		for _, id := range clients {
			ids[id] = true
		}
		if len(ids) > 1 {
			out.Across++
		}
	}

	return out
}

// describeData fills in DataInfo after all data is open and partitioned.
func (d *Data) describeData() {
	d.Info = describe(d.withoutValidation(), d.duplicates)
	for _, p := range d.evaluationSets {
		d.Info.EvaluationSets = append(d.Info.EvaluationSets, EvaluationSetInfo{p.name, len(p.examples),
			len(p.classes)})
		for _, note := range p.notes {
			d.Info.Notes = append(d.Info.Notes, p.name+": "+note)
		}
	}

	d.Info.Notes = append(d.Info.Notes, d.classNotes()...)
	d.Info.Clients = d.countShared()
	if n := d.Info.Clients.OwnTest; n > 0 {
		d.Info.Notes = append(d.Info.Notes,
			CountInWords(n, "test image")+" of clients equal to training images of the same client")
	}

	if n := d.Info.Clients.Across; n > 0 {
		d.Info.Notes = append(d.Info.Notes, CountInWords(n, "image")+" that several clients train on")
	}
}

// withoutValidation returns the set without the training examples that data.val_share made validation data and that
// nobody trains on.
func (d *Data) withoutValidation() *data.Set {
	if d.config.Data.ValShare == 0 {
		return d.Set
	}

	set, trained, moved := *d.Set, map[int]bool{}, map[string]bool{}
	for _, p := range d.Parts {
		for _, i := range p.Train {
			trained[i] = true
		}
	}

	for _, e := range set.Val {
		moved[e.ID] = true
	}

	set.Train = nil
	for i, e := range d.Set.Train {
		if trained[i] || !moved[e.ID] {
			set.Train = append(set.Train, e)
		}
	}

	return &set
}

// classNotes returns notes on classes that clients cannot be tested on, or cannot learn, because images are missing:
// one line of each kind. A single client need not have images of every class.
func (d *Data) classNotes() []string {
	var trained, tested []data.Example
	for _, p := range d.Parts {
		own, _, test := p.Of(d.Set)
		trained, tested = append(trained, own...), append(tested, test...)
	}

	train, test := d.Set.Counts(trained), d.Set.Counts(tested)
	var neither, untrained, untested []string
	for k, name := range d.Set.Classes {
		switch {
		case train[k]+test[k] == 0 && d.total == 0:
			neither = append(neither, name)
		case train[k]+test[k] == 0:
		case train[k] == 0:
			untrained = append(untrained, name)
		case test[k] == 0:
			untested = append(untested, name)
		}
	}

	var out []string
	say := func(names []string, what string) {
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("no client has %s of %s: %s", what, CountInWords(len(names), "class"),
				shortList(names)))
		}
	}

	say(neither, "images")
	say(untrained, "training images")
	say(untested, "test images")
	return out
}
