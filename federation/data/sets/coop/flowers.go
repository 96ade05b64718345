package coop

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"promptfed/federation/data/formats/matfile"
	"promptfed/federation/data/sets/source"
)

// flowerLists reads the 102 Category Flower release: imagelabels.mat has the label, from 1, of every
// jpg/image_NNNNN.jpg, cat_to_name.json the name of every label (flowerNames if the file is missing), and setid.mat the
// release's split.
func flowerLists(_ source.Config, paths []string) (*source.Listing, error) {
	listing := &source.Listing{List: paths[1], Images: paths[0]}
	labels, err := flowerNumbers(paths[1], "labels")
	if err != nil {
		return nil, err
	}

	names := map[string]string{}
	if paths[2] != "" {
		if err := source.DecodeList(paths[2], &names, "{label: class name}"); err != nil {
			return nil, err
		}
	} else {
		for i, name := range flowerNames {
			names[strconv.Itoa(i+1)] = name
		}
	}

	split := make([]string, len(labels))
	if paths[3] != "" {
		for _, s := range [][2]string{{"trnid", "train"}, {"valid", "val"}, {"tstid", "test"}} {
			ids, err := flowerNumbers(paths[3], s[0])
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				if id < 1 || id > len(labels) || split[id-1] != "" {
					return nil, fmt.Errorf("%s: %s: image %d is not one of the %d, or is in two lists", paths[3], s[0],
						id, len(labels))
				}
				split[id-1] = s[1]
			}
		}
	}

	for i, n := range labels {
		where := fmt.Sprintf("%s: image %d", paths[1], i+1)
		name := names[strconv.Itoa(n)]
		if name == "" {
			return nil, fmt.Errorf("%s: label %d has no name in %s", where, n, cmp.Or(paths[2],
				"CoOp's list of 102 flowers"))
		}
		if paths[3] != "" && split[i] == "" {
			return nil, fmt.Errorf("%s: image %d is in none of its lists", paths[3], i+1)
		}
		if err := listing.AddNamed(where, name, source.Item{Path: fmt.Sprintf("image_%05d.jpg", i+1), Label: n - 1,
			Split: split[i]}); err != nil {
			return nil, err
		}
	}

	if paths[3] == "" {
		listing.DrawSplit()
	} else {
		listing.OfficialSplit("setid.mat: 10 + 10 images of a class for train and val")
	}

	return listing, nil
}

// flowerNumbers reads a list of whole numbers.
func flowerNumbers(path, name string) (out []int, err error) {
	err = source.WithFile(path, func(file *os.File, _ fs.FileInfo) error {
		list, err := matfile.Read(file, name)
		if err != nil {
			return err
		}

		for _, v := range list {
			if float64(int(v)) != v {
				return fmt.Errorf("%s: %v is not a whole number", name, v)
			}
			out = append(out, int(v))
		}

		return nil
	})

	return out, err
}

// flowerNames are the names of the labels 1 to 102 of the 102 Category Flower set in CoOp's cat_to_name.json; the
// release itself shows them only in pictures.
var flowerNames = []string{
	"pink primrose", "hard-leaved pocket orchid", "canterbury bells", "sweet pea", "english marigold", "tiger lily",
	"moon orchid", "bird of paradise", "monkshood", "globe thistle", "snapdragon", "colt's foot", "king protea",
	"spear thistle", "yellow iris", "globe-flower", "purple coneflower", "peruvian lily", "balloon flower",
	"giant white arum lily", "fire lily", "pincushion flower", "fritillary", "red ginger", "grape hyacinth",
	"corn poppy", "prince of wales feathers", "stemless gentian", "artichoke", "sweet william", "carnation",
	"garden phlox", "love in the mist", "mexican aster", "alpine sea holly", "ruby-lipped cattleya", "cape flower",
	"great masterwort", "siam tulip", "lenten rose", "barbeton daisy", "daffodil", "sword lily", "poinsettia",
	"bolero deep blue", "wallflower", "marigold", "buttercup", "oxeye daisy", "common dandelion", "petunia",
	"wild pansy", "primula", "sunflower", "pelargonium", "bishop of llandaff", "gaura", "geranium", "orange dahlia",
	"pink-yellow dahlia", "cautleya spicata", "japanese anemone", "black-eyed susan", "silverbush",
	"californian poppy", "osteospermum", "spring crocus", "bearded iris", "windflower", "tree poppy", "gazania",
	"azalea", "water lily", "rose", "thorn apple", "morning glory", "passion flower", "lotus lotus", "toad lily",
	"anthurium", "frangipani", "clematis", "hibiscus", "columbine", "desert-rose", "tree mallow", "magnolia",
	"cyclamen", "watercress", "canna lily", "hippeastrum", "bee balm", "ball moss", "foxglove", "bougainvillea",
	"camellia", "mallow", "mexican petunia", "bromelia", "blanket flower", "trumpet creeper", "blackberry lily",
}
