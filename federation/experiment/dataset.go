package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

type EvaluationSetInfo struct {
	Name    string `json:"name"`
	Images  int    `json:"images"`
	Classes int    `json:"classes"`
}

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

func describe(s *data.Set, d data.Duplicates) DataInfo {
	out := DataInfo{Set: s.Name, Layout: s.Layout, Classes: len(s.Classes), Domains: s.Domains, LeftOut: len(s.Skipped),
		Duplicates: d, Notes: slices.Clone(s.Notes)}
	for _, sp := range s.Splits() {
		counts := s.Counts(*sp.Examples)
		one := SplitInfo{Name: sp.Name, Images: len(*sp.Examples), Least: slices.Min(counts), Most: slices.Max(counts)}
		for _, n := range counts {
			if n == 0 {
				one.Without++
			}
		}
		if len(s.Domains) > 0 {
			one.ByDomain = make([]int, len(s.Domains))
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

// contentsOf returns the content hashes of some images, with the feature cache as their store.
func (b *Built) contentsOf(ctx context.Context, list []data.Example, progress Progress) ([]data.ContentHash, error) {
	dir, err := FeatureCache(b.Config.Runtime.Cache)
	if err != nil { // no place to remember it
		dir = ""
	}
	return data.Cache{Dir: dir}.ContentHashes(ctx, list, b.workers(), progress.of("reading images"))
}

// findDuplicates compares the images of a set and treats duplicates as data.duplicates says.
func (b *Built) findDuplicates(ctx context.Context, s *data.Set, progress Progress) error {
	var list []data.Example
	for _, sp := range s.Splits() {
		list = append(list, *sp.Examples...)
	}
	contents, err := b.contentsOf(ctx, list, progress)
	if err != nil {
		return err
	}
	pooled := s.Pool != nil
	policy := b.Config.Data.Duplicates
	if b.duplicates, contents, err = s.FindDuplicates(contents, policy); err != nil {
		return err
	}
	b.keepContents(s, contents)
	for k, line := range b.duplicates.Lines(pooled) {
		if k == 0 {
			line += " (such as " + b.duplicates.Example + ")"
		}
		s.Notes = append(s.Notes, line)
	}
	switch d := b.duplicates; {
	case d.Dropped > 0:
		s.Notes = append(s.Notes, fmt.Sprintf("data.duplicates: drop removed %d images", d.Dropped))
	case d.TrainTest+d.TrainVal+d.ValTest > 0 || pooled && d.Repeated > 0:
		s.Notes = append(s.Notes, "data.duplicates: keep leaves these images in place; drop removes them, error "+
			"refuses the set")
	}
	return nil
}

// keepContents keeps the contents of all images of the set, and their digest.
func (b *Built) keepContents(s *data.Set, contents []data.ContentHash) {
	var all images
	b.contents = map[string]data.ContentHash{}
	for _, sp := range s.Splits() {
		n := len(*sp.Examples)
		all.add(*sp.Examples, contents[:n], sp.Name, s.Classes, s.Domains)
		for i, e := range *sp.Examples {
			b.contents[e.ID] = contents[i]
		}
		contents = contents[n:]
	}
	b.DataDigest = all.String()
}

// countShared counts equal images of the clients' lists.
func (b *Built) countShared() SharedImages {
	var out SharedImages
	trained := map[data.ContentHash]map[int]string{} // by client, the example
	lists := make([][3][]data.Example, len(b.Parts))
	for k, p := range b.Parts {
		lists[k][0], lists[k][1], lists[k][2] = p.Of(b.Set)
		for _, e := range lists[k][0] {
			if c, ok := b.contents[e.ID]; ok {
				if trained[c] == nil {
					trained[c] = map[int]string{}
				}
				trained[c][k] = e.ID
			}
		}
	}
	for k := range b.Parts {
		for _, e := range lists[k][2] {
			if c, ok := b.contents[e.ID]; ok && trained[c][k] != "" {
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
func (b *Built) describeData() {
	b.Info = describe(b.withoutValidation(), b.duplicates)
	for _, p := range b.evaluationSets {
		b.Info.EvaluationSets = append(b.Info.EvaluationSets, EvaluationSetInfo{p.name, len(p.examples),
			len(p.classes)})
		for _, note := range p.notes {
			b.Info.Notes = append(b.Info.Notes, p.name+": "+note)
		}
	}
	b.Info.Notes = append(b.Info.Notes, b.classNotes()...)
	b.Info.Clients = b.countShared()
	if n := b.Info.Clients.OwnTest; n > 0 {
		b.Info.Notes = append(b.Info.Notes, CountInWords(n,
			"test image")+" of clients equal to training images of the "+
			"same client")
	}
	if n := b.Info.Clients.Across; n > 0 {
		b.Info.Notes = append(b.Info.Notes, CountInWords(n, "image")+" that several clients train on")
	}
}

// withoutValidation returns the set without the training examples that data.val_share made validation data and that
// nobody trains on.
func (b *Built) withoutValidation() *data.Set {
	if b.Config.Data.ValShare == 0 {
		return b.Set
	}
	s, trained, moved := *b.Set, map[int]bool{}, map[string]bool{}
	for _, p := range b.Parts {
		for _, i := range p.Train {
			trained[i] = true
		}
	}
	for _, e := range s.Val {
		moved[e.ID] = true
	}
	s.Train = nil
	for i, e := range b.Set.Train {
		if trained[i] || !moved[e.ID] {
			s.Train = append(s.Train, e)
		}
	}
	return &s
}

// FeatureCache returns the folder of the feature cache: that of runtime.cache, or one of the user's.
func FeatureCache(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the feature cache: %w; set runtime.cache", err)
	}
	return filepath.Join(user, "promptfed", "features"), nil
}

// classNotes returns notes on classes that clients cannot be tested on, or cannot learn, because images are missing:
// one line of each kind. A single client need not have images of every class.
func (b *Built) classNotes() []string {
	train, test := make([]int, len(b.Set.Classes)), make([]int, len(b.Set.Classes))
	count := func(counts []int, list []data.Example) {
		for _, e := range list {
			counts[e.Label]++
		}
	}
	for _, p := range b.Parts {
		trained, _, tested := p.Of(b.Set)
		count(train, trained)
		count(test, tested)
	}
	var neither, untrained, untested []string
	for k, name := range b.Set.Classes {
		switch {
		case train[k]+test[k] == 0 && b.of == 0:
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
