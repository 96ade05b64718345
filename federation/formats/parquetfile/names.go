package parquetfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/parquet-go/parquet-go"
	"go.yaml.in/yaml/v3"
)

// Feature is what a Hugging Face data set says about a column.
type Feature struct{ Names []string }

// UnmarshalJSON reads a feature as Parquet files and dataset_infos.json have it: anything but a ClassLabel has no
// names.
func (f *Feature) UnmarshalJSON(raw []byte) error {
	var label struct {
		Type  string   `json:"_type"`
		Names []string `json:"names"`
	}
	if err := json.Unmarshal(raw, &label); err == nil && label.Type == "ClassLabel" {
		f.Names = label.Names
	}
	return nil // features of other kinds have other forms
}

// features are what the Parquet file itself says of its columns.
func (f *File) features() (map[string]Feature, error) {
	var meta struct {
		Info struct {
			Features map[string]Feature `json:"features"`
		} `json:"info"`
	}
	if text, ok := f.File.Lookup("huggingface"); ok {
		if err := json.Unmarshal([]byte(text), &meta); err != nil {
			return nil, fmt.Errorf("%s: its metadata %q are not JSON: %w", f.path, "huggingface", err)
		}
	}
	return meta.Info.Features, nil
}

// Described finds the columns, and what is said of them: by the file, and where that does not name the classes, by
// dataset_infos.json or the head of README.md in one of the folders.
func (f *File) Described(folders ...string) (pqColumns, map[string]Feature, error) {
	features, err := f.features()
	if err != nil {
		return pqColumns{}, nil, err
	}
	c, missing := f.columns(features)
	if missing == nil && (c.Label.Type().Kind() == parquet.ByteArray || len(features[c.Label.Name()].Names) > 0) {
		return c, features, nil
	}
	for _, dir := range folders {
		got, err := featureFile(filepath.Join(dir, "dataset_infos.json"), infoFeatures)
		if err == nil && !hasNames(got) {
			got, err = featureFile(filepath.Join(dir, "README.md"), readmeFeatures)
		}
		if err != nil {
			return c, nil, err
		}
		if hasNames(got) {
			for name, feature := range features {
				if len(feature.Names) > 0 {
					got[name] = feature
				}
			}
			features = got
			break
		}
	}
	c, missing = f.columns(features)
	return c, features, missing
}

func hasNames(m map[string]Feature) bool {
	for _, f := range m {
		if len(f.Names) > 0 {
			return true
		}
	}
	return false
}

// featureFile reads the first 16 MiB of a file; one that is not there has no features.
func featureFile(path string, read func([]byte) (map[string]Feature, error)) (map[string]Feature, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, 16<<20))
	if err != nil {
		return nil, err
	}
	got, err := read(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: repair or remove it; class names may be given in data.class_names", path,
			oneLine(err))
	}
	return got, nil
}

// infoFeatures reads dataset_infos.json: by configuration, their features.
func infoFeatures(raw []byte) (map[string]Feature, error) {
	var infos map[string]struct {
		Features map[string]Feature `json:"features"`
	}
	if err := json.Unmarshal(raw, &infos); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(infos)) {
		if hasNames(infos[name].Features) {
			return infos[name].Features, nil
		}
	}
	return nil, nil
}

// readmeFeatures reads the YAML at the head of README.md: dataset_info, one or a list, has features, each with a name
// and a dtype of class_label: names: {'0': NAME, ...}.
func readmeFeatures(raw []byte) (map[string]Feature, error) {
	rest, starts := bytes.CutPrefix(raw, []byte("---\n"))
	head, _, ends := bytes.Cut(rest, []byte("\n---"))
	if !starts || !ends {
		return nil, nil
	}
	var card struct {
		Info described `yaml:"dataset_info"`
	}
	if err := yaml.Unmarshal(head, &card); err != nil {
		return nil, err
	}
	out := map[string]Feature{}
	for _, i := range card.Info {
		for _, f := range i.Features {
			if len(f.Type.Names) > 0 {
				out[f.Name] = f.Type
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out, nil
}

// described is what README.md says of each configuration of a data set.
type described []struct {
	Features []struct {
		Name string  `yaml:"name"`
		Type Feature `yaml:"dtype"`
	} `yaml:"features"`
}

// UnmarshalYAML reads a list, or a single value for a list of one.
func (d *described) UnmarshalYAML(n *yaml.Node) error {
	type list described
	switch n.Kind {
	case yaml.MappingNode:
		*d = make(described, 1)
		return n.Decode(&(*d)[0])
	case yaml.SequenceNode:
		return n.Decode((*list)(d))
	}
	return nil
}

// UnmarshalYAML reads the names of a class label, a list or a map from their numbers; other features have none.
func (f *Feature) UnmarshalYAML(n *yaml.Node) error {
	var label struct {
		Class struct {
			Names yaml.Node `yaml:"names"`
		} `yaml:"class_label"`
	}
	if n.Kind != yaml.MappingNode || n.Decode(&label) != nil {
		return nil
	}
	if label.Class.Names.Kind != yaml.MappingNode {
		return label.Class.Names.Decode(&f.Names)
	}
	var byNumber map[string]string
	if err := label.Class.Names.Decode(&byNumber); err != nil {
		return err
	}
	f.Names = make([]string, len(byNumber))
	for k, name := range byNumber {
		i, err := strconv.Atoi(k)
		if err != nil || i < 0 || i >= len(byNumber) {
			return fmt.Errorf("class names: %q is not one of 0 to %d", k, len(byNumber)-1)
		}
		f.Names[i] = name
	}
	return nil
}
