package sets

// smallKinds are sets of small images in files of their own formats.
var smallKinds = []Kind{
	{Name: "cifar10", About: "CIFAR-10 (Krizhevsky, 2009) as images",
		Expects: "{train,test}/CLASS/",
		Source:  "CIFAR-10 exported to image files", open: preset("split", 10, 0)},
	{Name: "cifar10-bin", About: "CIFAR-10 in its binary version",
		Expects: "data_batch_N.bin, and if present test_batch.bin and batches.meta.txt",
		Source:  "the binary version of CIFAR-10", open: openCIFAR},
}
