package quickstart

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"promptfed/configs"
	"promptfed/federation/data"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/runtime/convert"
)

// Plan is a configuration for some images.
type Plan struct {
	Name string // of the run: the name of the folder
	Text []byte // of the configuration file
	Kind string // value of data.set
	// Images are those that were found, and Partition is what the text and the changes say about it.
	Images    *data.Set
	Partition partition.Config
	Found     string // description of the images in one line
	Parts     string // description of the partition in one line
	// Changes are the changes of the command line that apply to all methods. The text contains the other changes as
	// keys of a method.
	Changes []string
}

// Limits of the chosen partition.
const (
	perClient   = 40 // mean number of training images of a client, if the set is large enough
	mostClients = 10
	inDomain    = 2 // clients per domain, if the set is large enough
)

// choice is a candidate partition.
type choice struct {
	kind    string
	clients int
}

// For opens the images and chooses a configuration. changes are "key=value" from the command line, and affect the
// choice. A change of method makes the plan a comparison of that method with hand-written prompts. An ambiguous layout
// is an error that names both readings.
func For(images string, changes []string) (*Plan, error) {
	kind, err := Kind(images)
	if err != nil {
		return nil, err
	}

	plan := &Plan{Name: nameOf(images), Kind: kind, Changes: changes}
	asked, err := configs.OpenText("", nil, changes)
	if err != nil {
		return nil, err
	}

	var compared []contender
	if asked.Changed("method") {
		if compared, plan.Changes, err = against(asked, changes); err != nil {
			return nil, err
		}
	}

	read := func(c choice) (configs.Loaded, error) {
		plan.Text = plan.write(kind, images, asked.Data.Config, c, compared)
		l, err := configs.OpenText("the configuration for "+images, plan.Text, changes)
		if err == nil {
			err = l.Check()
		}
		return l, err
	}

	loaded, err := read(choice{"iid", 2})
	if err != nil {
		return nil, err
	}

	set, err := sets.Open(loaded.Data.Config)
	if err != nil {
		return nil, loaded.WithOrigin(err)
	}

	if len(set.Classes) < 2 {
		return nil, fmt.Errorf("%s: only one class, %s: a classifier needs two or more, each in its own folder",
			images, set.Classes[0])
	}

	plan.Images, plan.Found = set, found(set)
	for _, c := range choices(set) {
		if loaded, err = read(c); err != nil {
			return nil, err
		}
		if _, err = partition.Split(loaded.Partition, set, loaded.Data.Shots, loaded.Seed); err == nil {
			// the command line may have changed both
			_, err = read(choice{loaded.Partition.Kind, loaded.Partition.Clients})
			plan.Partition, plan.Parts = loaded.Partition, handed(loaded, set)
			return plan, err
		}
	}

	return nil, fmt.Errorf("%s: too few images: two clients need training and test images each: %s", images, plan.Found)
}

// choices returns candidate partitions. The first one has the strongest heterogeneity; the last one works for every
// set.
func choices(s *data.Set) []choice {
	train := 0
	for _, split := range s.Splits() {
		if split.Name != "test" && split.Name != "val" {
			train += len(*split.Examples)
		}
	}

	clients := max(2, min(mostClients, train/perClient))
	var out []choice
	if n := len(s.Domains); n > 1 {
		if train >= inDomain*n*perClient {
			out = append(out, choice{"domain-dirichlet", inDomain * n})
		}
		out = append(out, choice{"domain-dirichlet", n}, choice{"domain", n})
	}

	for ; clients > 2; clients = (clients + 1) / 2 {
		out = append(out, choice{"dirichlet", clients})
	}

	return append(out, choice{"dirichlet", 2}, choice{"iid", 2})
}

// Kind returns the value of data.set for images.
func Kind(images string) (string, error) {
	info, err := os.Stat(images)
	if err != nil {
		return "", fmt.Errorf("%w; give a folder of images, a list (.csv, .tsv, .json, .jsonl) or Parquet files", err)
	}

	byName := func(name string) string {
		switch strings.ToLower(filepath.Ext(name)) {
		case ".csv", ".tsv", ".json", ".jsonl":
			return "list"
		case ".parquet":
			return "parquet"
		}
		return ""
	}

	if !info.IsDir() {
		if kind := byName(images); kind != "" {
			return kind, nil
		}
		return "", fmt.Errorf("%s is a file; give a folder of images, a list (.csv, .tsv, .json, .jsonl) or "+
			"Parquet files", images)
	}

	out := "folder"
	err = filepath.WalkDir(images, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(images, path)
		switch depth := strings.Count(filepath.ToSlash(rel), "/"); {
		case err != nil:
			return err
		case e.IsDir() && depth >= 1:
			return fs.SkipDir
		case e.IsDir():
		case byName(rel) == "parquet", byName(rel) == "list" && (strings.HasPrefix(rel, "list.") ||
			strings.HasPrefix(rel, "metadata.")):
			out = byName(rel)
			return fs.SkipAll
		}
		return nil
	})

	return out, err
}

// nameOf returns a name for a run on a folder.
func nameOf(images string) string {
	full, err := filepath.Abs(images)
	if err != nil {
		full = images
	}

	name := strings.TrimSuffix(filepath.Base(full), filepath.Ext(full))
	name = strings.Trim(regexp.MustCompile(`[^\pL\pN_-]+`).ReplaceAllString(name, "-"), "-")
	if name == "" || len(name) > 100 {
		return "images"
	}

	return name
}

func found(set *data.Set) string {
	sizes := convert.Slice(set.Splits(), func(split data.Split) string {
		return fmt.Sprintf("%d %s", len(*split.Examples), split.Name)
	})
	text := fmt.Sprintf("%d classes", len(set.Classes))
	if n := len(set.Domains); n > 0 {
		text += fmt.Sprintf(", %d domains", n)
	}

	text += ", images: " + strings.Join(sizes, ", ")
	if set.Layout != "" {
		text = "layout " + set.Layout + ": " + text
	}

	return text
}

// abouts describes the partitions that this package chooses.
var abouts = map[string]string{
	"domain-dirichlet": "each client has images of one domain, and its own class proportions",
	"domain":           "each client has images of one domain, and the same class proportions",
	"dirichlet":        "each client has its own class proportions",
	"iid":              "all clients have the same class proportions; there are too few images for label skew",
}

func handed(l configs.Loaded, set *data.Set) string {
	p := l.Partition
	text := fmt.Sprintf("%s, %d clients", p.Kind, p.Clients)
	if strings.HasSuffix(p.Kind, "dirichlet") {
		text += fmt.Sprintf(", beta %g", p.Beta)
	}

	if about := abouts[p.Kind]; about != "" {
		text += ": " + about
	}

	if !slices.Contains([]string{"domain", "domain-dirichlet"}, p.Kind) && len(set.Domains) > 1 {
		text += "; domains are mixed"
	}

	return text
}
