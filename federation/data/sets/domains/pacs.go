package domains

var pacs = &domainSet{title: "PACS", count: 7,
	folders: []string{"PACS", "pacs_data", "kfold"},
	inner:   []string{"raw_images", "images", "kfold", "PACS", "raw_images/kfold", "images/kfold"},
	domains: []domainName{{"art_painting", []string{"art"}}, {"cartoon", nil}, {"photo", nil}, {"sketch", nil}},
	skip:    []string{"sketch/dog/n02103406_4068-1.png"}} // as in Dassl

// pacsLists are the official lists. Labels begin at 1; the test list of a domain holds all its images.
var pacsLists = domainListNames{
	train: []string{"%s_train_kfold.txt", "%s_train.txt"},
	cross: []string{"%s_crossval_kfold.txt", "%s_crossval.txt"},
	test:  []string{"%s_test_kfold.txt", "%s_test.txt"}}
