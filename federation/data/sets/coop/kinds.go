package coop

import (
	"strings"

	"promptfed/federation/data/sets/source"
)

// set is a kind of set with its files.
type set struct {
	source.Kind
	release
}

// table lists the sets of CoOp (Zhou et al., IJCV 2022), CUB-200-2011, Tiny-ImageNet and test sets with ImageNet's
// classes, with CoOp's folders, split files, class names and hand-written prompts (its DATASETS.md, datasets/*.py and
// trainers/zsclip.py).
var table = []set{
	{source.Kind{Name: "caltech101", About: "Caltech 101 (Fei-Fei et al., 2004): 100 classes",
		Expects: "[caltech-101/]split_zhou_Caltech101.json and 101_ObjectCategories/CLASS/, or the latter alone",
		Source:  "the Caltech 101 release (data.caltech.edu)"},
		release{folders: []string{"caltech-101", "caltech", "Caltech101_ObjectCategories"},
			split: "split_zhou_Caltech101.json", images: "101_ObjectCategories", classes: 100,
			layouts: []layout{{[]string{"101_ObjectCategories"}, classFolders(map[string]string{"BACKGROUND_Google": "",
				"Faces_easy": "",
				"airplanes":  "airplane", "Faces": "face", "Leopards": "leopard", "Motorbikes": "motorbike"}, nil)}}}},
	{source.Kind{Name: "oxfordpets", About: "Oxford-IIIT Pet (Parkhi et al., CVPR 2012): 37 breeds",
		Expects: "[oxford_pets/]split_zhou_OxfordPets.json and images/, or annotations/{trainval,test}.txt and " +
			"images/",
		Source:   "the Oxford-IIIT Pet release (robots.ox.ac.uk)",
		Template: "a photo of a {}, a type of pet."},
		release{folders: []string{"oxford_pets", "oxford-iiit-pet", "oxford_iiit_pets", "oxford_iiit", "pets"},
			split: "split_zhou_OxfordPets.json", images: "images", classes: 37,
			layouts: []layout{{[]string{"images", "annotations/trainval.txt", "annotations/test.txt"}, petLists}}}},
	{source.Kind{Name: "flowers102", About: "Oxford Flowers 102 (Nilsback and Zisserman, 2008): 102 flowers",
		Expects: "[oxford_flowers/]split_zhou_OxfordFlowers.json and jpg/, or imagelabels.mat, if present " +
			"cat_to_name.json and setid.mat, and jpg/",
		Source:   "the 102 Category Flower release (robots.ox.ac.uk)",
		Template: "a photo of a {}, a type of flower."},
		release{folders: []string{"oxford_flowers", "oxford_flowers_102", "flowers", "flowers-102",
			"102flowers"},
			split: "split_zhou_OxfordFlowers.json", images: "jpg", classes: 102,
			layouts: []layout{{[]string{"jpg|102flowers/jpg", "imagelabels.mat", "?cat_to_name.json", "?setid.mat"},
				flowerLists}}}},
	{source.Kind{Name: "food101", About: "Food-101 (Bossard et al., ECCV 2014): 101 dishes",
		Expects: "[food-101/]split_zhou_Food101.json and images/CLASS/, or meta/{train,test}.{txt,json} and " +
			"images/CLASS/, or the latter alone",
		Source:   "the Food-101 release (data.vision.ee.ethz.ch)",
		Template: "a photo of {}, a type of food."},
		release{folders: []string{"food-101", "food"},
			split: "split_zhou_Food101.json", images: "images", classes: 101,
			layouts: []layout{{[]string{"images", "meta/train.txt", "meta/test.txt"}, foodLists},
				{[]string{"images", "meta/train.json", "meta/test.json"}, foodLists},
				{[]string{"images"}, classFolders(nil, nil)}}}},
	{source.Kind{Name: "dtd", About: "Describable Textures (Cimpoi et al., CVPR 2014): 47 textures",
		Expects: "[dtd/]split_zhou_DescribableTextures.json and images/CLASS/, or labels/{train,val,test}1.txt and " +
			"images/CLASS/, or the latter alone",
		Source:   "the DTD release (robots.ox.ac.uk)",
		Template: "{} texture."},
		release{folders: []string{"dtd", "dtd-r1.0.1", "describable_textures"},
			split: "split_zhou_DescribableTextures.json", images: "images", classes: 47,
			layouts: []layout{{[]string{"images", "labels/train1.txt", "labels/val1.txt", "labels/test1.txt"},
				textureLists},
				{[]string{"images"}, classFolders(nil, nil)}}}},
	{source.Kind{Name: "eurosat", About: "EuroSAT (Helber et al., 2019), RGB: 10 kinds of land",
		Expects:  "[eurosat/]split_zhou_EuroSAT.json and 2750/CLASS/, or the latter alone",
		Source:   "the EuroSAT RGB release (its authors' page or zenodo.org)",
		Template: "a centered satellite photo of {}."},
		release{folders: []string{"eurosat", "EuroSAT_RGB"},
			split: "split_zhou_EuroSAT.json", images: "2750", classes: 10,
			layouts: []layout{{[]string{"2750|EuroSAT_RGB"},
				classFolders(map[string]string{
					"AnnualCrop": "Annual Crop Land", "Forest": "Forest",
					"HerbaceousVegetation": "Herbaceous Vegetation Land", "Highway": "Highway or Road",
					"Industrial": "Industrial Buildings", "Pasture": "Pasture Land",
					"PermanentCrop": "Permanent Crop Land", "Residential": "Residential Buildings", "River": "River",
					"SeaLake": "Sea or Lake"}, nil)}}}},
	{source.Kind{Name: "ucf101", About: "middle frames of UCF101 (Soomro et al., 2012): 101 actions",
		Expects: "[ucf101/]split_zhou_UCF101.json and UCF-101-midframes/CLASS/, or ucfTrainTestlist/ and " +
			"UCF-101-midframes/CLASS/, or the latter alone",
		Source:   "the frames that CoOp's DATASETS.md links; videos and lists from the UCF101 release (crcv.ucf.edu)",
		Template: "a photo of a person doing {}."},
		release{folders: []string{"ucf101"},
			split: "split_zhou_UCF101.json", images: "UCF-101-midframes", classes: 101,
			layouts: []layout{{[]string{"UCF-101-midframes", "ucfTrainTestlist/classInd.txt|classInd.txt",
				"ucfTrainTestlist/trainlist01.txt|trainlist01.txt", "ucfTrainTestlist/testlist01.txt|testlist01.txt"},
				actionLists},
				{[]string{"UCF-101-midframes"}, classFolders(nil, actionName)}}}},
	{source.Kind{Name: "cub200", About: "CUB-200-2011 (Wah et al., 2011): 200 birds",
		Expects: "[CUB_200_2011/]images.txt, image_class_labels.txt, train_test_split.txt, if present classes.txt, " +
			"and images/CLASS/, or a split_zhou_*.json and images/, or images/CLASS/ alone",
		Source: "the CUB-200-2011 release (vision.caltech.edu)"},
		release{folders: []string{"CUB_200_2011", "cub", "cub200", "cub2011"},
			split: "split_zhou_CUB.json", images: "images", classes: 200,
			layouts: []layout{{[]string{"images", "images.txt", "image_class_labels.txt", "train_test_split.txt",
				"?classes.txt"}, birdLists},
				{[]string{"images"}, classFolders(nil, birdName)}}}},
	{source.Kind{Name: "stanfordcars", About: "Stanford Cars (Krause et al., 2013): 196 models",
		Expects: "[stanford_cars/]split_zhou_StanfordCars.json, cars_train/ and cars_test/",
		Source:  "the Stanford Cars release; the split file comes with CoOp"},
		release{folders: []string{"stanford_cars", "cars", "cars196"},
			split: "split_zhou_StanfordCars.json", images: ".", classes: 196}},
	{source.Kind{Name: "sun397", About: "SUN397 (Xiao et al., CVPR 2010): 397 scenes",
		Expects: "[sun397/]split_zhou_SUN397.json and SUN397/, or ClassName.txt, Training_01.txt, Testing_01.txt and " +
			"SUN397/",
		Source: "the SUN397 release and its partitions (vision.princeton.edu)"},
		release{folders: []string{"sun397", "sun"},
			split: "split_zhou_SUN397.json", images: "SUN397", classes: 397,
			layouts: []layout{{[]string{"SUN397", "ClassName.txt|SUN397/ClassName.txt|Partitions/ClassName.txt",
				"Training_01.txt|Partitions/Training_01.txt", "Testing_01.txt|Partitions/Testing_01.txt"},
				sceneLists}}}},
	{source.Kind{Name: "fgvcaircraft", About: "FGVC-Aircraft (Maji et al., 2013): 100 variants",
		Expects:  "[fgvc_aircraft/]variants.txt, images_variant_{train,val,test}.txt and images/, if need be in data/",
		Source:   "the FGVC-Aircraft 2013b release (robots.ox.ac.uk)",
		Template: "a photo of a {}, a type of aircraft."},
		release{folders: []string{"fgvc_aircraft", "fgvc-aircraft-2013b", "aircraft"},
			inner: []string{"data"},
			split: "split_zhou_FGVCAircraft.json", images: "images", classes: 100,
			layouts: []layout{{[]string{"images", "variants.txt", "images_variant_train.txt", "images_variant_val.txt",
				"images_variant_test.txt"}, aircraftLists}}}},
	{source.Kind{Name: "imagenet", About: "ImageNet (Russakovsky et al., 2015): 1,000 classes, val as test",
		Expects: "[imagenet/]classnames.txt and images/{train,val}/WNID/",
		Source:  "the ILSVRC 2012 release (image-net.org); classnames.txt comes with CoOp"},
		release{folders: []string{"imagenet", "ILSVRC2012", "ILSVRC", "imagenet-1k"}, inner: []string{"ILSVRC"},
			split: "split_zhou_ImageNet.json", images: "images", classes: 1000,
			layouts: []layout{{[]string{"images/train|train|Data/CLS-LOC/train|ILSVRC/Data/CLS-LOC/train",
				"images/val|val|Data/CLS-LOC/val|ILSVRC/Data/CLS-LOC/val",
				"classnames.txt|LOC_synset_mapping.txt"}, synsetFolders}}}},
	{source.Kind{Name: "tinyimagenet", About: "Tiny-ImageNet (Stanford CS231n): 200 classes, val is the test split",
		Expects: "tiny-imagenet-200/ with train/WNID/images/, wnids.txt, words.txt, and val/images/ with " +
			"val_annotations.txt or val/WNID/",
		Source: "tiny-imagenet-200 of Stanford's course CS231n"}, release{
		folders: []string{"tiny-imagenet-200", "tiny-imagenet", "tinyimagenet200"}, classes: 200,
		layouts: []layout{{[]string{"train", "val/images", "val/val_annotations.txt", "?wnids.txt",
			"?words.txt"}, tinyLists},
			{[]string{"train", "val", "?wnids.txt", "?words.txt"}, tinyFolders}}}},
	// Test sets with ImageNet's classes, in CoOp's folders (its DATASETS.md). They have no training images.
	variant("imagenetv2", "ImageNetV2 (Recht et al., ICML 2019), matched frequency: 1,000 classes, test images only",
		"imagenetv2-matched-frequency-format-val|imagenetv2-matched-frequency|test", "{0..999}/", 1000, "imagenetv2"),
	variant("imagenet-sketch", "ImageNet-Sketch (Wang et al., NeurIPS 2019): 1,000 classes, test images only",
		"images|sketch|test", "WNID/", 1000, "imagenet-sketch", "imagenet-s"),
	variant("imagenet-a", "ImageNet-A (Hendrycks et al., CVPR 2021): 200 of ImageNet's classes, test images only",
		"imagenet-a|test", "WNID/", 200, "imagenet-adversarial", "imagenet-a"),
	variant("imagenet-r", "ImageNet-R (Hendrycks et al., ICCV 2021): 200 of ImageNet's classes, test images only",
		"imagenet-r|test", "WNID/", 200, "imagenet-rendition", "imagenet-r"),
}

// variant describes a test set with ImageNet's classes; its release has the first word of about as its name.
func variant(name, about, images, class string, classes int, folders ...string) set {
	title, _, _ := strings.Cut(about, " ")
	first, _, _ := strings.Cut(images, "|")
	return set{source.Kind{Name: name, About: about,
		Expects: "[" + folders[0] + "/]" + first + "/" + class + " and classnames.txt, also in imagenet/ beside it",
		Source:  "the " + title + " release; classnames.txt comes with CoOp"},
		release{folders: folders, classes: classes, layouts: []layout{{[]string{images,
			"classnames.txt|../imagenet/classnames.txt|imagenet/classnames.txt"}, variantFolders}}}}
}

// Kinds lists the sets of the table.
var Kinds = func() (out []source.Kind) {
	for _, s := range table {
		s.Open = s.open
		out = append(out, s.Kind)
	}
	return out
}()
