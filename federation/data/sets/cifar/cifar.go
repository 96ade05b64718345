package cifar

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/folder"
	"promptfed/federation/data/sets/source"
)

// CIFAR's binary layout (Krizhevsky, "The CIFAR-10 dataset") has records of one label byte (CIFAR-100: superclass, then
// class) and 3,072 pixel bytes: 32x32 red, then green, then blue, each row by row. The Python version has the same
// pixels in a numpy array.
const (
	cifarSide   = 32
	cifarPixels = 3 * cifarSide * cifarSide
)

// cifarSet is one of the two sets.
type cifarSet struct {
	title   string
	folders []string // that may hold the files, under data.root
	train   string   // name of the training files; in CIFAR-10 a number follows
	parts   int      // number of training files
	test    string
	meta    string // the pickle of class names
	// In these lists the first entry is for classes and the second, which CIFAR-10 lacks, for superclasses.
	texts  []string // text files of names in the binary version
	names  []string // keys of meta
	labels []string // keys of a batch
	known  [][]string
	coarse []int // superclass of every class
}

var cifar10 = &cifarSet{title: "CIFAR-10", train: "data_batch_", parts: 5, test: "test_batch", meta: "batches.meta",
	folders: []string{"cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10", "cifar-10/cifar-10-batches-bin",
		"cifar-10/cifar-10-batches-py"},
	texts: []string{"batches.meta.txt"}, names: []string{"label_names"}, labels: []string{"labels"},
	known: [][]string{{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}}}

// open reads the binary files, the pickles, or image folders; auto takes the first that exists.
func (c *cifarSet) open(cfg source.Config) (*data.Set, error) {
	finder := source.Finder{}
	dirs, err := finder.Candidates(cfg.Root, c.folders...)
	if err != nil {
		return nil, err
	}

	for _, layout := range []string{"binary", "pickles", "folders"} {
		if cfg.Layout != layout && cfg.Layout != "auto" {
			continue
		}

		for _, dir := range dirs {
			if layout == "folders" {
				sub, err := finder.Candidates(dir, "train", "test")
				if err != nil {
					return nil, err
				}
				if len(sub) == 3 {
					return c.fromFolders(cfg, dir)
				}
				continue
			}

			train, test, err := c.files(dir, layout == "binary")
			if err != nil {
				return nil, err
			}

			if len(train) > 0 {
				r := &cifarReader{cifarSet: c, cfg: cfg, dir: dir, bin: layout == "binary",
					set: &data.Set{Layout: layout + " files"}}
				return r.read(train, test)
			}
		}
	}

	first := c.train
	if c.coarse == nil {
		first += "1"
	}

	return nil, source.NothingFound(fmt.Errorf("no %s in %s: looked for %s.bin or the pickle %s, and for folders "+
		"train and test with class folders, in it and in %s there: set data.root to the folder that holds them or to "+
		"the one above it", c.title, cfg.Root, first, first, strings.Join(c.folders, ", ")), dirs)
}

// files returns the training files of a folder, in order, and its test file or "".
func (c *cifarSet) files(dir string, bin bool) (train []string, test string, err error) {
	list, err := source.Entries(dir)
	if err != nil {
		return nil, "", err
	}

	for _, e := range list {
		name, isBin := strings.CutSuffix(strings.ToLower(e.Name()), ".bin")
		batch, isTrain := strings.CutPrefix(name, c.train)
		numbered := batch != "" && len(batch) < 4 && strings.Trim(batch, "0123456789") == ""
		switch {
		case e.IsDir() || isBin != bin:
		case name == c.test:
			test = filepath.Join(dir, e.Name())
		case isTrain && (batch == "" || numbered) && numbered == strings.HasSuffix(c.train, "_"):
			train = append(train, filepath.Join(dir, e.Name()))
		}
	}

	slices.SortStableFunc(train, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	return train, test, nil
}

// fromFolders reads {train,test}/CLASS/ with the labels of the published set.
func (c *cifarSet) fromFolders(cfg source.Config, dir string) (*data.Set, error) {
	walk := cfg.Walk()
	top, err := source.Folders(dir)
	if err != nil {
		return nil, err
	}

	top = slices.DeleteFunc(top, func(d string) bool { return source.SplitName(filepath.Base(d)) == "" })
	if err := folder.Splits(walk, top, false); err != nil {
		return nil, err
	}

	set, err := walk.Set(folder.LayoutPaths[folder.SplitLayout])
	if err != nil {
		return nil, err
	}

	for _, name := range set.Classes {
		super := -1
		if i := slices.IndexFunc(c.known[0], func(k string) bool { return source.SameName(k, name) }); i >= 0 &&
			c.coarse != nil {
			super = c.coarse[i]
		}
		set.Coarse = append(set.Coarse, super)
	}

	if c.coarse != nil {
		set.Superclasses = source.UnderscoresToSpaces(c.known[1])
	}

	c.notes(set, dir)
	return set, nil
}

// notes adds a note if the number of classes differs from the published one, and drops superclasses if one of them is
// unknown.
func (c *cifarSet) notes(set *data.Set, dir string) {
	if len(set.Classes) != len(c.known[0]) {
		set.Notes = append(set.Notes, fmt.Sprintf("%s: found %d classes, but %s has %d", dir, len(set.Classes), c.title,
			len(c.known[0])))
	}

	if i := slices.Index(set.Coarse, -1); i >= 0 {
		if c.coarse != nil {
			set.Notes = append(set.Notes, fmt.Sprintf("%s: class %q has no known superclass, so superclasses are not "+
				"used", dir, set.Classes[i]))
		}
		set.Coarse, set.Superclasses = nil, nil
	}
}

// cifar100Groups lists the superclasses and their classes, both in alphabetical order, which is the order of labels.
var cifar100Groups = []struct {
	name    string
	classes []string
}{
	{"aquatic_mammals", []string{"beaver", "dolphin", "otter", "seal", "whale"}},
	{"fish", []string{"aquarium_fish", "flatfish", "ray", "shark", "trout"}},
	{"flowers", []string{"orchid", "poppy", "rose", "sunflower", "tulip"}},
	{"food_containers", []string{"bottle", "bowl", "can", "cup", "plate"}},
	{"fruit_and_vegetables", []string{"apple", "mushroom", "orange", "pear", "sweet_pepper"}},
	{"household_electrical_devices", []string{"clock", "keyboard", "lamp", "telephone", "television"}},
	{"household_furniture", []string{"bed", "chair", "couch", "table", "wardrobe"}},
	{"insects", []string{"bee", "beetle", "butterfly", "caterpillar", "cockroach"}},
	{"large_carnivores", []string{"bear", "leopard", "lion", "tiger", "wolf"}},
	{"large_man-made_outdoor_things", []string{"bridge", "castle", "house", "road", "skyscraper"}},
	{"large_natural_outdoor_scenes", []string{"cloud", "forest", "mountain", "plain", "sea"}},
	{"large_omnivores_and_herbivores", []string{"camel", "cattle", "chimpanzee", "elephant", "kangaroo"}},
	{"medium_mammals", []string{"fox", "porcupine", "possum", "raccoon", "skunk"}},
	{"non-insect_invertebrates", []string{"crab", "lobster", "snail", "spider", "worm"}},
	{"people", []string{"baby", "boy", "girl", "man", "woman"}},
	{"reptiles", []string{"crocodile", "dinosaur", "lizard", "snake", "turtle"}},
	{"small_mammals", []string{"hamster", "mouse", "rabbit", "shrew", "squirrel"}},
	{"trees", []string{"maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"}},
	{"vehicles_1", []string{"bicycle", "bus", "motorcycle", "pickup_truck", "train"}},
	{"vehicles_2", []string{"lawn_mower", "rocket", "streetcar", "tank", "tractor"}},
}

var cifar100 = func() *cifarSet {
	set := &cifarSet{title: "CIFAR-100", train: "train", parts: 1, test: "test", meta: "meta",
		folders: []string{"cifar-100-binary", "cifar-100-python", "cifar-100", "cifar-100/cifar-100-binary",
			"cifar-100/cifar-100-python"},
		texts: []string{"fine_label_names.txt", "coarse_label_names.txt"}, names: []string{"fine_label_names",
			"coarse_label_names"},
		labels: []string{"fine_labels", "coarse_labels"}, known: make([][]string, 2)}
	super := map[string]int{}
	for i, g := range cifar100Groups {
		set.known[1] = append(set.known[1], g.name)
		for _, class := range g.classes {
			set.known[0] = append(set.known[0], class)
			super[class] = i
		}
	}
	slices.Sort(set.known[0])
	for _, class := range set.known[0] {
		set.coarse = append(set.coarse, super[class])
	}
	return set
}()

// Kinds are CIFAR-10 and CIFAR-100.
var Kinds = []source.Kind{
	{Name: "cifar10", About: "CIFAR-10 (Krizhevsky, 2009): 10 classes",
		Expects: "cifar-10-batches-bin/ with data_batch_N.bin and test_batch.bin, cifar-10-batches-py/ with the same " +
			"as pickles, or {train,test}/CLASS/ with images",
		Source:  "the binary or Python version of the University of Toronto, or image files made of it",
		Layouts: cifarLayouts, Open: cifar10.open},
	{Name: "cifar10-bin", About: "another name of cifar10",
		Expects: "as cifar10", Source: "as cifar10", Layouts: cifarLayouts, Open: cifar10.open},
	{Name: "cifar100", About: "CIFAR-100 (Krizhevsky, 2009): 100 classes in 20 superclasses",
		Expects: "cifar-100-binary/ with train.bin and test.bin, cifar-100-python/ with train, test and meta, or " +
			"{train,test}/CLASS/ with images",
		Source:  "the binary or Python version of the University of Toronto, or image files made of it",
		Layouts: cifarLayouts, Open: cifar100.open},
}

var cifarLayouts = []string{"binary", "pickles", "folders"}
