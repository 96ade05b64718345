package domains

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
