package domains

import (
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/goldentest"
)

// TestVLCS opens DomainBed's folders, Dassl's archive, whose classes are numbers, and the folders full/ that other code
// made from it. Labels follow the published order for any subset of folders.
func TestVLCS(t *testing.T) {
	bed, dassl := []string{"Caltech101", "LabelMe", "SUN09", "VOC2007"}, []string{"CALTECH", "LABELME", "PASCAL", "SUN"}
	inside := func(domains []string, folders ...string) (out []string) {
		for _, d := range domains {
			for _, f := range folders {
				out = append(out, d+"/"+f)
			}
		}
		return out
	}
	for _, c := range []struct {
		on, classes      []string
		train, val, test int
	}{
		{bed, []string{"bird", "person"}, 32, 0, 8},           // 10 images a domain, of which two are held out
		{inside(dassl, "full"), []string{"0", "4"}, 32, 0, 8}, // the same
		{inside(dassl, "train", "crossval", "test", "full"), []string{"0", "4"}, 40, 40, 40},
		{inside(dassl, "train", "test"), []string{"bird", "person"}, 40, 0, 40},
	} {
		s := mustOpen(t, source.Config{Set: "vlcs", Root: datatest.Tree(t, domainTree("VLCS/", c.on, c.classes, 5)...)})
		if !slices.Equal(s.Classes, []string{"bird", "car", "chair", "dog", "person"}) ||
			!slices.Equal(s.Domains, []string{"caltech", "labelme", "pascal", "sun"}) {
			t.Errorf("%q %q", s.Classes, s.Domains)
		}
		if len(s.Train) != c.train || len(s.Val) != c.val || len(s.Test) != c.test {
			t.Errorf("%v: %d %d %d", c.on, len(s.Train), len(s.Val), len(s.Test))
		}
		for _, e := range s.Train {
			person := strings.Contains(e.ID, "/person/") || strings.Contains(e.ID, "/4/")
			voc := strings.Contains(e.ID, "VOC2007") || strings.Contains(e.ID, "PASCAL")
			if person != (e.Label == 4) || voc != (e.Domain == 2) {
				t.Errorf("%+v", e)
			}
		}
	}
}

// TestTerraIncognita: a class without images at a location changes no label, and a folder that is not a class is
// refused.
func TestTerraIncognita(t *testing.T) {
	places := []string{"location_38", "location_43", "location_46"}
	tree := append(domainTree("terra_incognita/", places, []string{"bird", "squirrel"}, 5),
		domainTree("terra_incognita/", []string{"location_100"}, []string{"empty"}, 5)...)
	s := mustOpen(t, source.Config{Set: "terraincognita", Root: datatest.Tree(t, tree...)})
	if !slices.Equal(s.Domains, []string{"L100", "L38", "L43", "L46"}) || len(s.Classes) != 10 {
		t.Errorf("%q %q", s.Domains, s.Classes)
	}
	for word, label := range map[string]int{"bird": 0, "empty": 5, "squirrel": 9} {
		if !slices.ContainsFunc(settest.IDs(s.Train), func(id string) bool {
			return strings.Contains(id, "/"+word+"/") && strings.Contains(id, "="+string(rune('0'+label))+".")
		}) {
			t.Errorf("no %s has label %d: %v", word, label, settest.IDs(s.Train))
		}
	}
	_, err := openSet(source.Config{Set: "terraincognita", Root: datatest.Tree(t,
		append(tree, "terra_incognita/location_43/car/1.png")...)})
	goldentest.WantError(t, err, "location_43", "car", "TerraIncognita", "raccoon")
	_, err = openSet(source.Config{Set: "terraincognita", Root: datatest.Tree(t, tree[:30]...)})
	goldentest.WantError(t, err, "L100", "does not exist")
}
