package domains

import (
	"strings"

	"promptfed/federation/data/sets/source"
)

// Kinds lists the sets with several visual domains.
var Kinds = []source.Kind{
	{Name: "pacs", About: "PACS (Li et al., ICCV 2017): 4 domains, 7 classes",
		Expects: "DOMAIN/CLASS/ with art_painting, cartoon, photo, sketch, also under raw_images/ or images/; " +
			"and if present DOMAIN_{train,crossval,test}_kfold.txt in label/ or splits/",
		Source:  "the PACS release, as distributed by its authors, DomainBed or Dassl",
		Layouts: []string{"lists", "lists-as-published", "folders"}, Open: pacs.open},
	{Name: "office31", About: "Office-31 (Saenko et al., ECCV 2010): 3 domains, 31 classes",
		Expects: "DOMAIN/CLASS/ or DOMAIN/images/CLASS/ with amazon, dslr, webcam",
		Source:  "the Office-31 release of UC Berkeley", Open: office31.open},
	{Name: "officehome", About: "Office-Home (Venkateswara et al., CVPR 2017): 4 domains, 65 classes",
		Expects: "DOMAIN/CLASS/ or DOMAIN/{train,val}/CLASS/ with Art, Clipart, Product, Real World",
		Source:  "the Office-Home release, or Dassl's office_home_dg",
		Open:    officeHome.open},
	{Name: "vlcs", About: "VLCS (Torralba and Efros, CVPR 2011; Fang et al., ICCV 2013): 4 domains, 5 classes",
		Expects: "DOMAIN/CLASS/ or DOMAIN/{train,crossval,test}/CLASS/ with caltech, labelme, pascal, sun, or " +
			"Caltech101, LabelMe, VOC2007, SUN09",
		Source: "VLCS of DomainBed or Dassl", Open: vlcs.open},
	{Name: "terraincognita", About: "TerraIncognita (Beery et al., ECCV 2018): 4 camera locations, 10 classes",
		Expects: "location_{38,43,46,100}/CLASS/ with bird, bobcat, cat, coyote, dog, empty, opossum, rabbit, " +
			"raccoon, squirrel",
		Source: "Caltech Camera Traps in DomainBed's folders", Open: terra.open},
	{Name: "officecaltech10", About: "Office-Caltech10 (Gong et al., CVPR 2012): 4 domains, 10 classes",
		Expects: "DOMAIN/CLASS/ with amazon, caltech, dslr, webcam; and if present DOMAIN_{train,test}.pkl",
		Source:  "the Office-Caltech release, or office_caltech_10 of FedBN's code",
		Layouts: []string{"pickles", "folders"}, Open: officeCaltech.open},
	{Name: "domainnet", About: "DomainNet (Peng et al., ICCV 2019): 6 domains, 345 classes",
		Expects: "DOMAIN/CLASS/ with any of clipart, infograph, painting, quickdraw, real, sketch; " +
			"and if present DOMAIN_{train,test}.txt beside them or in splits/",
		Source:  "the DomainNet release (cleaned version)",
		Layouts: []string{"lists", "lists-as-published", "folders"}, Open: domainNet.open},
	{Name: "domainnet10", About: "DomainNet's ten classes of FedBN (Li et al., ICLR 2021): 6 domains",
		Expects: "as domainnet; and if present DOMAIN_{train,test}.pkl, which go first",
		Source:  "the DomainNet release, with the pickles of FedBN's code",
		Layouts: []string{"pickles", "lists", "lists-as-published", "folders"}, Open: domainNet10.open},
	{Name: "digits", About: "digits 0 to 9 in several domains: MNIST, MNIST-M, SVHN, SYN, USPS, each in its own format",
		Expects: "any of mnist, mnist_m, svhn, syn, usps, each with " + digitsExpects,
		Source: "MNIST, SVHN and USPS as published; MNIST-M and SYN (Ganin and Lempitsky, ICML 2015); Digits-5 or " +
			"Digits-DG",
		Open: openDigits},
}

// vlcs lists the classes in the order of their labels; the folders of Dassl's archive are named by label.
var vlcs = &domainSet{title: "VLCS", count: 5, strict: true,
	folders: []string{"VLCS"}, inner: []string{"images"},
	domains: []domainName{{"caltech", []string{"Caltech101"}}, {"labelme", nil}, {"pascal", []string{"VOC2007"}},
		{"sun", []string{"SUN09"}}},
	classes: []string{"bird", "car", "chair", "dog", "person"}}

// terra has all classes at every location, although some locations have no images of some classes.
var terra = &domainSet{title: "TerraIncognita", count: 10, strict: true,
	folders: []string{"terra_incognita", "TerraInc"}, inner: []string{"images"},
	domains: []domainName{{"L100", []string{"location_100"}}, {"L38", []string{"location_38"}},
		{"L43", []string{"location_43"}}, {"L46", []string{"location_46"}}},
	classes: []string{"bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel"}}

var domainNetDomains = []domainName{{"clipart", nil}, {"infograph", nil}, {"painting", nil}, {"quickdraw", nil},
	{"real", nil}, {"sketch", nil}}

var domainNet = &domainSet{title: "DomainNet", count: 345, partial: true,
	folders: []string{"domainnet", "domain_net"}, inner: []string{"images", "domainnet"}, domains: domainNetDomains,
	lists: txtLists,
	// The published labels follow an alphabetical order that ignores punctuation: cello, cell_phone; trumpet, t-shirt,
	// umbrella.
	order: func(a, b string) int { return strings.Compare(source.NormalizeName(a), source.NormalizeName(b)) }}

// domainNet10 is the subset of FedBN (Li et al., ICLR 2021).
var domainNet10 = &domainSet{title: "DomainNet's ten classes", count: 10, partial: true,
	folders: domainNet.folders, inner: domainNet.inner, domains: domainNetDomains,
	lists: txtLists, pickles: true,
	classes: []string{"bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill",
		"wine_glass", "zebra"}}

var office31 = &domainSet{title: "Office-31", count: 31, byDomain: true,
	folders: []string{"office31", "office-31", "office_31"},
	inner:   []string{"images", "Original_images", "domain_adaptation_images"},
	domains: []domainName{{"amazon", nil}, {"dslr", nil}, {"webcam", nil}}}

var officeHome = &domainSet{title: "Office-Home", count: 65, byDomain: true,
	folders: []string{"office_home", "OfficeHome", "office_home_dg", "OfficeHomeDataset_10072016", "OfficeHomeDataset"},
	inner:   []string{"images", "OfficeHomeDataset_10072016", "office_home", "office_home_dg"},
	domains: []domainName{{"Art", nil}, {"Clipart", nil}, {"Product", nil}, {"Real World", []string{"Real"}}}}

var officeCaltech = &domainSet{title: "Office-Caltech10", count: 10, pickles: true,
	folders: []string{"office_caltech_10", "office_caltech", "OfficeCaltechDomainAdaptation"},
	inner:   []string{"images", "office_caltech_10"},
	domains: []domainName{{"amazon", nil}, {"caltech", []string{"caltech10", "caltech-256"}}, {"dslr", nil},
		{"webcam", nil}},
	classes: []string{"back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor",
		"mouse", "mug",
		"projector"}}

var pacs = &domainSet{title: "PACS", count: 7,
	folders: []string{"PACS", "pacs_data", "kfold"},
	inner:   []string{"raw_images", "images", "kfold", "PACS", "raw_images/kfold", "images/kfold"},
	domains: []domainName{{"art_painting", []string{"art"}}, {"cartoon", nil}, {"photo", nil}, {"sketch", nil}},
	skip:    []string{"sketch/dog/n02103406_4068-1.png"}, // as in Dassl
	// The official lists: labels begin at 1, and the test list of a domain holds all its images.
	lists: domainListNames{
		train: []string{"%s_train_kfold.txt", "%s_train.txt"},
		cross: []string{"%s_crossval_kfold.txt", "%s_crossval.txt"},
		test:  []string{"%s_test_kfold.txt", "%s_test.txt"}}}
