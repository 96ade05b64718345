package sets

// smallKinds are sets of small images in files of their own formats.
var smallKinds = []Kind{
	{Name: "cifar10", About: "CIFAR-10 (Krizhevsky, 2009): 10 classes",
		Expects: "cifar-10-batches-bin/ with data_batch_N.bin and test_batch.bin, cifar-10-batches-py/ with the same " +
			"as pickles, " +
			"or {train,test}/CLASS/ with images",
		Source:  "the binary or Python version that the University of Toronto hands out, or image files made of it",
		Layouts: cifarLayouts, open: cifar10.open},
	{Name: "cifar10-bin", About: "another name of cifar10",
		Expects: "as cifar10", Source: "as cifar10", Layouts: cifarLayouts, open: cifar10.open},
	{Name: "cifar100", About: "CIFAR-100 (Krizhevsky, 2009): 100 classes in 20 superclasses",
		Expects: "cifar-100-binary/ with train.bin and test.bin, cifar-100-python/ with train, test and meta, or " +
			"{train,test}/CLASS/ with images",
		Source:  "the binary or Python version that the University of Toronto hands out, or image files made of it",
		Layouts: cifarLayouts, open: cifar100.open},
	{Name: "tinyimagenet", About: "Tiny-ImageNet (Stanford CS231n): 200 classes, val is the test split",
		Expects: "tiny-imagenet-200/ with train/WNID/images/, wnids.txt, words.txt, and val/images/ with " +
			"val_annotations.txt or val/WNID/",
		Source: "tiny-imagenet-200 of Stanford's course CS231n", open: openRelease(tinyImageNet)},
}

var cifarLayouts = []string{"binary", "pickles", "folders"}
