package parquetfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/parquet-go/parquet-go"
	"go.yaml.in/yaml/v3"

	"promptfed/federation/sets/source"
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
			return nil, fmt.Errorf("%s: its metadata %q are no JSON: %w", f.path, "huggingface", err)
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
	for _, name := range source.SortedKeys(infos) {
		if hasNames(infos[name].Features) {
			return infos[name].Features, nil
		}
	}
	return nil, nil
}

// readmeFeatures reads the YAML at the head of README.md: dataset_info, one or a list, has features, each with a name
// and a dtype of class_label: names: {'0': NAME, ...}.
func readmeFeatures(raw []byte) (map[string]Feature, error) {
	rest, ok := bytes.CutPrefix(raw, []byte("---\n"))
	if !ok {
		return nil, nil
	}
	head, _, ok := bytes.Cut(rest, []byte("\n---"))
	if !ok {
		return nil, nil
	}
	var card struct {
		Info yaml.Node `yaml:"dataset_info"`
	}
	if err := yaml.Unmarshal(head, &card); err != nil {
		return nil, err
	}
	type info struct {
		Features []struct {
			Name string    `yaml:"name"`
			Type yaml.Node `yaml:"dtype"`
		} `yaml:"features"`
	}
	var infos []info
	switch card.Info.Kind {
	case yaml.MappingNode:
		var one info
		if err := card.Info.Decode(&one); err != nil {
			return nil, err
		}
		infos = []info{one}
	case yaml.SequenceNode:
		if err := card.Info.Decode(&infos); err != nil {
			return nil, err
		}
	}
	out := map[string]Feature{}
	for _, i := range infos {
		for _, f := range i.Features {
			var label struct {
				Class struct {
					Names yaml.Node `yaml:"names"`
				} `yaml:"class_label"`
			}
			if f.Type.Kind != yaml.MappingNode || f.Type.Decode(&label) != nil {
				continue
			}
			names, err := labelNames(label.Class.Names)
			if err != nil {
				return nil, fmt.Errorf("names of %q: %w", f.Name, err)
			}
			out[f.Name] = Feature{names}
		}
		if hasNames(out) {
			break
		}
	}
	return out, nil
}

// labelNames reads a list of names, or a map from their numbers.
func labelNames(n yaml.Node) ([]string, error) {
	switch n.Kind {
	case yaml.SequenceNode:
		var names []string
		err := n.Decode(&names)
		return names, err
	case yaml.MappingNode:
		var byNumber map[string]string
		if err := n.Decode(&byNumber); err != nil {
			return nil, err
		}
		names := make([]string, len(byNumber))
		for k, name := range byNumber {
			i, err := strconv.Atoi(k)
			if err != nil || i < 0 || i >= len(names) {
				return nil, fmt.Errorf("%q is not one of 0 to %d", k, len(names)-1)
			}
			names[i] = name
		}
		return names, nil
	}
	return nil, nil
}
