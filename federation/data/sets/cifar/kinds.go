package cifar

import (
	"promptfed/federation/data/sets/source"
)

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
