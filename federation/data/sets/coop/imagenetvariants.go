package coop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"promptfed/federation/data/sets/source"
)

// VariantKinds are test sets with ImageNet's classes, in CoOp's folders (its DATASETS.md). They have no training
// images.
var VariantKinds = []source.Kind{
	variant("imagenetv2", "ImageNetV2 (Recht et al., ICML 2019), matched frequency: 1,000 classes, test images only",
		"imagenetv2/", "imagenetv2-matched-frequency-format-val", "{0..999}/", "the ImageNetV2 release",
		openRelease(imageNetV2)),
	variant("imagenet-sketch", "ImageNet-Sketch (Wang et al., NeurIPS 2019): 1,000 classes, test images only",
		"imagenet-sketch/", "images", "WNID/", "the ImageNet-Sketch release", openRelease(imageNetSketch)),
	variant("imagenet-a", "ImageNet-A (Hendrycks et al., CVPR 2021): 200 of ImageNet's classes, test images only",
		"imagenet-adversarial/", "imagenet-a", "WNID/", "the ImageNet-A release", openRelease(imageNetA)),
	variant("imagenet-r", "ImageNet-R (Hendrycks et al., ICCV 2021): 200 of ImageNet's classes, test images only",
		"imagenet-rendition/", "imagenet-r", "WNID/", "the ImageNet-R release", openRelease(imageNetR)),
}

func variant(name, about, folder, images, class, from string, open source.Open) source.Kind {
	return source.Kind{Name: name, About: about, Source: from + "; classnames.txt comes with CoOp", Open: open,
		Expects: "[" + folder + "]" + images + "/" + class + " and classnames.txt, also in imagenet/ beside it"}
}

var (
	imageNetV2 = variantRelease(1000, "imagenetv2-matched-frequency-format-val|imagenetv2-matched-frequency|test",
		"imagenetv2")
	imageNetSketch = variantRelease(1000, "images|sketch|test", "imagenet-sketch", "imagenet-s")
	imageNetA      = variantRelease(200, "imagenet-a|test", "imagenet-adversarial", "imagenet-a")
	imageNetR      = variantRelease(200, "imagenet-r|test", "imagenet-rendition", "imagenet-r")
)

func variantRelease(classes int, images string, folders ...string) release {
	return release{folders: folders, classes: classes, layouts: []layout{{[]string{images,
		"classnames.txt|../imagenet/classnames.txt|imagenet/classnames.txt"}, variantFolders}}}
}

// allSynsets is the number of ImageNet's classes.
const allSynsets = 1000

// variantFolders reads folders WNID/ or, as in ImageNetV2, folders N/ for line N of classnames.txt, counted from 0.
// Labels follow the order of that file, which is the order of WNIDs; classes without a folder are omitted.
func variantFolders(cfg source.Config, paths []string) (*source.Listing, error) {
	l := &source.Listing{List: paths[1], Images: paths[0], RepeatedNames: true, TestOnly: true}
	ids, names, err := synsetNames(paths[1])
	if err != nil {
		return nil, err
	}
	if len(ids) != allSynsets || !slices.IsSorted(ids) {
		return nil, fmt.Errorf("%s has %d lines: expected ImageNet's %d classes in the order of their WNIDs, as in "+
			"CoOp's classnames.txt", paths[1], len(ids), allSynsets)
	}
	dirs, err := synsetDirs(paths[0])
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		id := filepath.Base(dir)
		label, known := slices.BinarySearch(ids, id)
		if n, err := strconv.Atoi(id); err == nil && n >= 0 && n < len(ids) {
			label, known = n, true
		}
		if !known {
			return nil, fmt.Errorf("%s: %s has no line for it", dir, paths[1])
		}
		if err := folder(l, cfg, dir, label, names[ids[label]], "test"); err != nil {
			return nil, err
		}
	}
	return l, nil
}
