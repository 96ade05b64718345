package parquet

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/goldentest"
)

// Class names come from the configuration whose folder holds the files. If several configurations have names and no
// folder selects one, no names are used: the first one by the alphabet would name digits after letters.
func TestConfigurations(t *testing.T) {
	const infos = `{"letters": {"features": {"fine_label": {"names": ["a","b","c","d","e","f","g","h"],
		"_type": "ClassLabel"}}}, "trees": {"features": {"fine_label": {"names": ["oak","elm","fir","ash","yew","box",
		"fig","gum"], "_type": "ClassLabel"}}}}`
	const readme = "---\ndataset_info:\n- config_name: letters\n  features:\n  - name: fine_label\n    dtype:\n" +
		"      class_label:\n        names: [a, b, c, d, e, f, g, h]\n- config_name: trees\n  features:\n  - name: " +
		"fine_label\n    dtype:\n      class_label:\n        names: [oak, elm, fir, ash, yew, box, fig, gum]\n---\n"
	for file, text := range map[string]string{"dataset_infos.json": infos, "README.md": readme} {
		for _, sub := range []string{"trees/", "trees/train/"} {
			root := datatest.Write(t, put(t, map[string]string{sub + "train.parquet": "numbers.parquet",
				"trees/test.parquet": "numbers.parquet"}), map[string]string{file: text})
			for _, at := range []string{root, filepath.Join(root, "trees")} {
				s := mustOpen(t, source.Config{Set: "parquet", Root: at})
				if !slices.Equal(s.Classes, []string{"ash", "gum"}) { // names of numbers 3 and 7
					t.Errorf("%s, %s: classes %q", file, at, s.Classes)
				}
			}
		}
		root := datatest.Write(t, put(t, map[string]string{"data/train.parquet": "numbers.parquet",
			"data/test.parquet": "numbers.parquet"}), map[string]string{file: text})
		_, err := openSet(source.Config{Set: "parquet", Root: root})
		goldentest.WantError(t, err, filepath.Join(root, file), `["letters" "trees"]`, "a folder of its name")
		same := strings.NewReplacer("oak", "a", "elm", "b", "fir", "c", "ash", "d", "yew", "e", "box", "f", "fig", "g",
			"gum", "h").Replace(text)
		s := mustOpen(t, source.Config{Set: "parquet", Root: datatest.Write(t, root, map[string]string{file: same})})
		if !slices.Equal(s.Classes, []string{"d", "h"}) {
			t.Errorf("%s: configurations that agree: %q", file, s.Classes)
		}
	}
}
