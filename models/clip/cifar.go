package clip

import (
	"slices"

	"promptfed/runtime/convert"
)

// NamedClasses are class names with their token ids in CLIP's tokenizer, so that a measurement on a published set of
// classes needs no vocabulary.
type NamedClasses []NamedClass

// NamedClass is a class name with its token ids.
type NamedClass struct {
	Name string
	IDs  []int
}

// Ids in CLIP's published vocabulary.
const (
	StartID = 49406 // start of text
	EndID   = 49407 // end of text
	StopID  = 269   // the full stop at the end of a word
)

// Names returns the names of the classes.
func (n NamedClasses) Names() []string {
	return convert.Slice(n, func(c NamedClass) string { return c.Name })
}

// Suffixes returns the tokens [name . EOT] of every class.
func (n NamedClasses) Suffixes() [][]int {
	return convert.Slice(n, func(c NamedClass) []int { return append(slices.Clone(c.IDs), StopID, EndID) })
}

// CIFAR10 are the classes of CIFAR-10 (Krizhevsky 2009).
var CIFAR10 = NamedClasses{
	{"airplane", []int{16451}}, {"automobile", []int{25258}}, {"bird", []int{3329}}, {"cat", []int{2368}},
	{"deer", []int{8700}}, {"dog", []int{1929}}, {"frog", []int{11438}}, {"horse", []int{4558}}, {"ship", []int{1158}},
	{"truck", []int{4629}},
}

// CIFAR100 are the classes of CIFAR-100 (Krizhevsky 2009), with underscores replaced by spaces.
var CIFAR100 = NamedClasses{
	{"apple", []int{3055}}, {"aquarium fish", []int{16814, 2759}}, {"baby", []int{1794}}, {"bear", []int{4298}},
	{"beaver", []int{22874}}, {"bed", []int{2722}}, {"bee", []int{5028}}, {"beetle", []int{16534}},
	{"bicycle", []int{11652}}, {"bottle", []int{5392}}, {"bowl", []int{3814}}, {"boy", []int{1876}},
	{"bridge", []int{2465}}, {"bus", []int{2840}}, {"butterfly", []int{9738}}, {"camel", []int{21914}},
	{"can", []int{753}}, {"castle", []int{3540}}, {"caterpillar", []int{27111}}, {"cattle", []int{13644}},
	{"chair", []int{4269}}, {"chimpanzee", []int{10543, 1072, 14080}}, {"clock", []int{6716}}, {"cloud", []int{3887}},
	{"cockroach", []int{622, 916, 31073}}, {"couch", []int{12724}}, {"crab", []int{11574}}, {"crocodile", []int{24757}},
	{"cup", []int{1937}}, {"dinosaur", []int{15095}}, {"dolphin", []int{16464}}, {"elephant", []int{10299}},
	{"flatfish", []int{8986, 2759}}, {"forest", []int{4167}}, {"fox", []int{3240}}, {"girl", []int{1611}},
	{"hamster", []int{33313}}, {"house", []int{1212}}, {"kangaroo", []int{25513}}, {"keyboard", []int{13017}},
	{"lamp", []int{10725}}, {"lawn mower", []int{11024, 30895}}, {"leopard", []int{15931}}, {"lion", []int{5567}},
	{"lizard", []int{17221}}, {"lobster", []int{13793}}, {"man", []int{786}}, {"maple tree", []int{10570, 2677}},
	{"motorcycle", []int{10297}}, {"mountain", []int{3965}}, {"mouse", []int{9301}}, {"mushroom", []int{13011}},
	{"oak tree", []int{7221, 2677}}, {"orange", []int{4287}}, {"orchid", []int{18678}}, {"otter", []int{22456}},
	{"palm tree", []int{8612, 2677}}, {"pear", []int{18820}}, {"pickup truck", []int{15382, 4629}},
	{"pine tree", []int{7374, 2677}}, {"plain", []int{10709}}, {"plate", []int{5135}}, {"poppy", []int{15447}},
	{"porcupine", []int{817, 5059, 715}}, {"possum", []int{38575}}, {"rabbit", []int{10274}}, {"raccoon", []int{29516}},
	{"ray", []int{3077}}, {"road", []int{1759}}, {"rocket", []int{8383}}, {"rose", []int{3568}}, {"sea", []int{2102}},
	{"seal", []int{10159}}, {"shark", []int{7980}}, {"shrew", []int{12101, 342}}, {"skunk", []int{42194}},
	{"skyscraper", []int{3075, 11187, 1284}}, {"snail", []int{23132}}, {"snake", []int{8798}}, {"spider", []int{7622}},
	{"squirrel", []int{14004}}, {"streetcar", []int{34268}}, {"sunflower", []int{21559}},
	{"sweet pepper", []int{2418, 8253}}, {"table", []int{2175}}, {"tank", []int{6172}}, {"telephone", []int{17243}},
	{"television", []int{8608}}, {"tiger", []int{6531}}, {"tractor", []int{14607}}, {"train", []int{3231}},
	{"trout", []int{14853}}, {"tulip", []int{28389}}, {"turtle", []int{10912}}, {"wardrobe", []int{15020}},
	{"whale", []int{11650}}, {"willow tree", []int{15665, 2677}}, {"wolf", []int{5916}}, {"woman", []int{2308}},
	{"worm", []int{10945}},
}
