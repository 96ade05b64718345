package cifar

import "slices"

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
	c := &cifarSet{title: "CIFAR-100", train: "train", parts: 1, test: "test", meta: "meta",
		folders: []string{"cifar-100-binary", "cifar-100-python", "cifar-100", "cifar-100/cifar-100-binary",
			"cifar-100/cifar-100-python"},
		texts: []string{"fine_label_names.txt", "coarse_label_names.txt"}, names: []string{"fine_label_names",
			"coarse_label_names"},
		labels: []string{"fine_labels", "coarse_labels"}, known: make([][]string, 2)}
	super := map[string]int{}
	for i, g := range cifar100Groups {
		c.known[1] = append(c.known[1], g.name)
		for _, class := range g.classes {
			c.known[0] = append(c.known[0], class)
			super[class] = i
		}
	}
	slices.Sort(c.known[0])
	for _, class := range c.known[0] {
		c.coarse = append(c.coarse, super[class])
	}
	return c
}()
