package domains

import (
	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
)

var office31 = &domainSet{title: "Office-31", count: 31, byDomain: true,
	folders: []string{"office31", "office-31", "office_31"},
	inner:   []string{"images", "Original_images", "domain_adaptation_images"},
	domains: []domainName{{"amazon", nil}, {"dslr", nil}, {"webcam", nil}}}

var officeHome = &domainSet{title: "Office-Home", count: 65, byDomain: true,
	folders: []string{"office_home", "OfficeHome", "office_home_dg", "OfficeHomeDataset_10072016", "OfficeHomeDataset"},
	inner:   []string{"images", "OfficeHomeDataset_10072016", "office_home", "office_home_dg"},
	domains: []domainName{{"Art", nil}, {"Clipart", nil}, {"Product", nil}, {"Real World", []string{"Real"}}}}

var officeCaltech = &domainSet{title: "Office-Caltech10", count: 10,
	folders: []string{"office_caltech_10", "office_caltech", "OfficeCaltechDomainAdaptation"},
	inner:   []string{"images", "office_caltech_10"},
	domains: []domainName{{"amazon", nil}, {"caltech", []string{"caltech10", "caltech-256"}}, {"dslr", nil},
		{"webcam", nil}},
	classes: []string{"back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor",
		"mouse", "mug",
		"projector"}}

// openDomainFolders opens a set that has only folders.
func openDomainFolders(d *domainSet) func(source.Config) (*data.Set, error) {
	return func(cfg source.Config) (*data.Set, error) {
		p, err := d.find(cfg.Root)
		if err != nil {
			return nil, err
		}
		return p.fromFolders(cfg)
	}
}
