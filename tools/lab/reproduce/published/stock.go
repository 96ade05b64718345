package published

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"promptfed/configs"
	"promptfed/federation/data/sets"
	"promptfed/federation/methods/image"
	"promptfed/federation/methods/multimodal"
	"promptfed/federation/methods/parts/layer"
	"promptfed/models/bundle"
	"promptfed/models/hub"
)

// tower is one of OpenAI's image towers under the name that the tables use.
type tower struct {
	pull   []string // names of promptfed pull, the first of which is recommended
	size   string   // of the download
	second float64  // images per second on two threads (docs/measurements.md, image features)
}

var towers = map[string]tower{
	"rn50":    {[]string{"RN50"}, "0.3 GB", 33.7},
	"rn101":   {[]string{"RN101"}, "0.3 GB", 20.6},
	"vit-b32": {[]string{"ViT-B/32", "clip-vit-base-patch32"}, "0.4 GB", 39.1},
	"vit-b16": {[]string{"ViT-B/16", "clip-vit-base-patch16"}, "0.4 GB", 8.2},
}

// table is a sweep with what this machine can run of it.
type table struct {
	path  string
	whole *configs.Sweep
	sweep *configs.Sweep      // nil for nothing
	keep  map[string][]string // labels of axes that have others too
}

// stock is what this machine has.
type stock struct {
	options
	sizes map[string]configs.CountedSet
	needs map[string]string // what tables need: how to get it; "" for what is here
}

// newStock looks for what this machine has. It makes links to fetched bundles in the folder links.
func newStock(o options, links string) (*stock, error) {
	s := &stock{o, map[string]configs.CountedSet{}, map[string]string{}}
	counts, _, err := configs.LoadCounts("configs/reproduce/sizes.yaml", nil)
	if err != nil {
		return nil, err
	}

	for _, c := range counts.Sets {
		s.sizes[c.Set] = c
	}

	return s, s.link(links)
}

// link puts fetched bundles under the names that the tables use into the folder links, where the program finds them,
// unless there are bundles of these names.
func (s *stock) link(links string) error {
	paths := []string{s.models, os.Getenv(bundle.ModelsVariable), links}
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == "" })
	os.Setenv(bundle.ModelsVariable, strings.Join(paths, string(filepath.ListSeparator)))
	for name, t := range towers {
		if _, err := bundle.Find(name); err == nil {
			continue
		}

		for _, pull := range t.pull {
			m, err := hub.Parse(pull)
			if err != nil {
				return err
			}

			b, err := bundle.Find(m.Folder())
			if err != nil {
				continue
			}

			to, err := filepath.Abs(b.Dir)
			if err == nil {
				err = os.Symlink(to, filepath.Join(links, name))
			}

			if err != nil {
				return err
			}

			break
		}
	}

	return nil
}

// open loads a table without the labels whose weights or images are missing.
func (s *stock) open(path string) (opened table, err error) {
	options := configs.SweepOptions{Smoke: s.smoke, Sets: s.sets()}
	opened = table{path: path, keep: map[string][]string{}}
	if opened.whole, err = configs.LoadSweep(path, options); err != nil {
		return opened, err
	}

	for _, axis := range opened.whole.Axes {
		var keep []string
		for _, l := range axis.Labels() {
			if slices.ContainsFunc(opened.whole.Cells, func(c configs.Cell) bool {
				return c.Labels[axis.Name] == l && s.has(c)
			}) {
				keep = append(keep, l)
			}
		}

		if len(keep) == 0 {
			return opened, nil
		}

		if len(keep) < len(axis.Points) {
			opened.keep[axis.Name] = keep
		}
	}

	options.Keep = opened.keep
	left, err := configs.LoadSweep(path, options)
	if err == nil && !slices.ContainsFunc(left.Cells, func(c configs.Cell) bool { return !s.has(c) }) {
		opened.sweep = left
	}

	return opened, err
}

// has reports whether weights and images of a cell are here, and notes what to do about those that are not.
func (s *stock) has(cell configs.Cell) bool {
	all := true
	need := func(what string, look func() (do string)) {
		do, looked := s.needs[what]
		if !looked {
			do = look()
			s.needs[what] = do
		}
		all = all && do == ""
	}

	for _, name := range cell.Config.Backbones {
		need("weights "+name, func() string {
			t, ok := towers[name]
			if _, err := bundle.Find(name, cell.Config.Runtime.Models); err == nil {
				return ""
			} else if !ok {
				return "put a bundle of this name into the folder of -models"
			}
			return fmt.Sprintf("bin/promptfed pull %s (%s)", t.pull[0], t.size)
		})
	}

	if set := cell.Config.Data.Config; set.Set != "synthetic" {
		need("images "+set.Set, func() string {
			_, err := sets.Open(set)
			if err == nil {
				return ""
			} else if !errors.As(err, &sets.Missing{}) {
				return err.Error() // some of its files are here
			}
			i := slices.IndexFunc(sets.Kinds(), func(k sets.Kind) bool { return k.Name == set.Set })
			return fmt.Sprintf("%s, into %s", sets.Kinds()[i].Source, cmp.Or(s.data, "the folder of -data"))
		})
	}

	if set := cell.Config.Synthetic.Config; set.Set == "folder" {
		need("images "+filepath.Dir(set.Root), func() string {
			if _, err := sets.Open(set); err == nil {
				return ""
			}
			return "images of a generator, in a folder for each set and class"
		})
	}

	return all
}

// visual are the methods that train prompts of the image tower, which runs in each of their steps.
var visual = slices.Concat(image.Methods, multimodal.Methods)

// hours estimates the time of cells from docs/measurements.md: a step of the text tower takes 15 ms and 2.2 ms for each
// class, a step of the image tower as long as the features of twice its batch; a test of a client that trained takes a
// third of a step. Times are those of two threads. Features are computed once for a set and a tower. For the round of
// Table S5 that was measured in 3.3 s this gives 6.3 s.
func (s *stock) hours(w *configs.Sweep) float64 {
	seconds, featured := 0., map[string]bool{}
	for _, c := range w.Cells {
		conf := c.Config
		size := s.sizes[conf.Data.Set]
		clients := float64(conf.Partition.Clients)
		train := float64(size.Train)
		if conf.Data.Shots > 0 {
			train = min(train, float64(conf.Data.Shots*size.Classes)*cmp.Or(shared[conf.Partition.Kind], clients))
		}

		for _, name := range conf.Backbones {
			if !featured[conf.Data.Set+" "+name] {
				featured[conf.Data.Set+" "+name] = true
				seconds += (train + float64(size.Test)) / rate(name)
			}
		}

		step := .015 + .0022*float64(size.Classes)
		if slices.ContainsFunc(visual, func(d layer.Def) bool { return d.Name == conf.Method }) {
			step = 2 * float64(conf.Train.Batch) / rate(conf.Backbones[0])
		}

		steps := float64(conf.Train.Epochs) * max(clients, train/float64(conf.Train.Batch))
		tests := clients / 3 / float64(max(1, conf.Eval.Every))
		seconds += float64(conf.Train.Rounds) * conf.Participation * step * (steps + tests)
	}

	return seconds / 3600 / max(1, float64(runtime.GOMAXPROCS(0))/2)
}

// shared is 1 for partitions in which one client has all images of a class.
var shared = map[string]float64{"pathological": 1}

func rate(backbone string) float64 { return cmp.Or(towers[backbone].second, 1000) }

func hoursText(h float64) string {
	switch {
	case h < 1:
		return fmt.Sprintf("%.0f minutes", math.Ceil(60*h))
	case h > 48:
		return fmt.Sprintf("%.0f days", math.Ceil(h/24))
	}
	return fmt.Sprintf("%.0f hours", math.Ceil(h))
}

// print says what is here, what is missing, and how long the tables take.
func (s *stock) print(w io.Writer, tables []table) {
	title := "missing:\n"
	needs := map[string][]string{} // by how to get them
	for _, what := range slices.Sorted(maps.Keys(s.needs)) {
		needs[s.needs[what]] = append(needs[s.needs[what]], what)
	}

	for _, what := range slices.Sorted(maps.Keys(s.needs)) {
		if do := s.needs[what]; do != "" && needs[do][0] == what {
			fmt.Fprintf(w, "%s  %-22s %s\n", title, strings.Join(needs[do], ", "), do)
			title = ""
		}
	}

	if s.smoke {
		return
	}

	fmt.Fprintf(w, "tables, with the estimated time of all their cells on these %d processors (docs/papers.md):\n",
		runtime.GOMAXPROCS(0))
	for _, t := range tables {
		runs := "nothing of it can run"
		if t.sweep != nil {
			runs = fmt.Sprintf("%d of %d cells can run", len(t.sweep.Cells), len(t.whole.Cells))
		}
		fmt.Fprintf(w, "  %-40s about %s; %s\n", t.path, hoursText(s.hours(t.whole)), runs)
	}
}
