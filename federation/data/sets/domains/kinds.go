package domains

import (
	"promptfed/federation/data/sets/source"
)

// Kinds lists the sets with several visual domains.
var Kinds = []source.Kind{
	{Name: "pacs", About: "PACS (Li et al., ICCV 2017): 4 domains, 7 classes",
		Expects: "DOMAIN/CLASS/ with art_painting, cartoon, photo, sketch, also under raw_images/ or images/; " +
			"and if present DOMAIN_{train,crossval,test}_kfold.txt in label/ or splits/",
		Source:  "the PACS release, as distributed by its authors, DomainBed or Dassl",
		Layouts: []string{"lists", "lists-as-published", "folders"}, Open: openDomains(pacs, pacsLists, false)},
	{Name: "office31", About: "Office-31 (Saenko et al., ECCV 2010): 3 domains, 31 classes",
		Expects: "DOMAIN/CLASS/ or DOMAIN/images/CLASS/ with amazon, dslr, webcam",
		Source:  "the Office-31 release of UC Berkeley", Open: openDomainFolders(office31)},
	{Name: "officehome", About: "Office-Home (Venkateswara et al., CVPR 2017): 4 domains, 65 classes",
		Expects: "DOMAIN/CLASS/ or DOMAIN/{train,val}/CLASS/ with Art, Clipart, Product, Real World",
		Source:  "the Office-Home release, or Dassl's office_home_dg", Open: openDomainFolders(officeHome)},
	{Name: "vlcs", About: "VLCS (Torralba and Efros, CVPR 2011; Fang et al., ICCV 2013): 4 domains, 5 classes",
		Expects: "DOMAIN/CLASS/ or DOMAIN/{train,crossval,test}/CLASS/ with caltech, labelme, pascal, sun, or " +
			"Caltech101, LabelMe, VOC2007, SUN09",
		Source: "VLCS of DomainBed or Dassl", Open: openDomainFolders(vlcs)},
	{Name: "terraincognita", About: "TerraIncognita (Beery et al., ECCV 2018): 4 camera locations, 10 classes",
		Expects: "location_{38,43,46,100}/CLASS/ with bird, bobcat, cat, coyote, dog, empty, opossum, rabbit, " +
			"raccoon, squirrel",
		Source: "Caltech Camera Traps in DomainBed's folders", Open: openDomainFolders(terra)},
	{Name: "officecaltech10", About: "Office-Caltech10 (Gong et al., CVPR 2012): 4 domains, 10 classes",
		Expects: "DOMAIN/CLASS/ with amazon, caltech, dslr, webcam; and if present DOMAIN_{train,test}.pkl",
		Source:  "the Office-Caltech release, or office_caltech_10 of FedBN's code",
		Layouts: []string{"pickles", "folders"}, Open: openDomains(officeCaltech, domainListNames{}, true)},
	{Name: "domainnet", About: "DomainNet (Peng et al., ICCV 2019): 6 domains, 345 classes",
		Expects: "DOMAIN/CLASS/ with any of clipart, infograph, painting, quickdraw, real, sketch; " +
			"and if present DOMAIN_{train,test}.txt beside them or in splits/",
		Source:  "the DomainNet release (cleaned version)",
		Layouts: []string{"lists", "lists-as-published", "folders"}, Open: openDomains(domainNet, txtLists, false)},
	{Name: "domainnet10", About: "DomainNet's ten classes of FedBN (Li et al., ICLR 2021): 6 domains",
		Expects: "as domainnet; and if present DOMAIN_{train,test}.pkl, which go first",
		Source:  "the DomainNet release, with the pickles of FedBN's code",
		Layouts: []string{"pickles", "lists", "lists-as-published", "folders"}, Open: openDomains(domainNet10, txtLists,
			true)},
	{Name: "digits", About: "digits 0 to 9 in several domains: MNIST, MNIST-M, SVHN, SYN, USPS, each in its own format",
		Expects: "any of mnist, mnist_m, svhn, syn, usps, each with " + digitsExpects,
		Source: "MNIST, SVHN and USPS as published; MNIST-M and SYN (Ganin and Lempitsky, ICML 2015); Digits-5 or " +
			"Digits-DG",
		Open: openDigits},
}
