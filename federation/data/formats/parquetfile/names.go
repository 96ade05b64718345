package parquetfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"

	"github.com/parquet-go/parquet-go"
	"go.yaml.in/yaml/v3"

	"promptfed/runtime/oneline"
)

// Feature is the description of a column in a Hugging Face data set.
type Feature struct{ Names []string }

// UnmarshalJSON reads a feature from Parquet metadata or dataset_infos.json. Only a ClassLabel has names.
func (f *Feature) UnmarshalJSON(raw []byte) error {
	var label struct {
		Type  string   `json:"_type"`
		Names []string `json:"names"`
	}
	if err := json.Unmarshal(raw, &label); err == nil && label.Type == "ClassLabel" {
		f.Names = label.Names
	}

	return nil // other kinds of features have other forms
}

// features returns the features that the Parquet file itself declares.
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

// FindColumns finds the columns and their features. The features come from the file; if the file does not name the
// classes, they come from dataset_infos.json or the header of README.md in one of the folders.
func (f *File) FindColumns(folders ...string) (pqColumns, map[string]Feature, error) {
	features, err := f.features()
	if err != nil {
		return pqColumns{}, nil, err
	}

	columns, missing := f.columns(features)
	if missing == nil && (columns.Label.Type().Kind() == parquet.ByteArray ||
		len(features[columns.Label.Name()].Names) > 0) {
		return columns, features, nil
	}

	for _, dir := range folders {
		path := filepath.Join(dir, "dataset_infos.json")
		all, err := featureFile(path, infoFeatures)
		if err == nil && len(all) == 0 {
			path = filepath.Join(dir, "README.md")
			all, err = featureFile(path, readmeFeatures)
		}

		if err != nil {
			return columns, nil, err
		}

		got, err := f.configured(all)
		if err != nil {
			return columns, nil, fmt.Errorf("%s: %w", path, err)
		}

		if len(got) > 0 {
			maps.Copy(got, named(features))
			features = got
			break
		}
	}

	columns, missing = f.columns(features)
	return columns, features, missing
}

// configured returns the features of the file's configuration: the one with the name of the file's folder, or of the
// folder above, or the only one. Several configurations count as one if they name the classes alike.
func (f *File) configured(all map[string]map[string]Feature) (map[string]Feature, error) {
	dir := filepath.Dir(f.path)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}

	for _, name := range []string{filepath.Base(dir), filepath.Base(filepath.Dir(dir))} {
		if got, ok := all[name]; ok {
			return got, nil
		}
	}

	names := slices.Sorted(maps.Keys(all))
	for _, name := range names {
		if !reflect.DeepEqual(all[name], all[names[0]]) {
			return nil, fmt.Errorf("it names the classes of several configurations, %q, in different ways: put the "+
				"files of one of them into a folder of its name, and set data.root to that", names)
		}
	}

	if len(names) == 0 {
		return nil, nil
	}

	return all[names[0]], nil
}

// featureFile reads the first 16 MiB of a file and returns the features of each configuration that names classes. A
// file that does not exist has none.
func featureFile(path string, read func([]byte) (map[string]map[string]Feature, error)) (map[string]map[string]Feature,
	error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("%w: the names of classes may stand there", err)
	}
	defer f.Close()

	raw, err := io.ReadAll(io.LimitReader(f, 16<<20))
	if err != nil {
		return nil, err
	}

	got, err := read(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: repair or remove it; class names may be given in data.class_names", path,
			oneline.Error(err))
	}

	for name, all := range got {
		if got[name] = named(all); len(got[name]) == 0 {
			delete(got, name)
		}
	}

	return got, nil
}

// infoFeatures reads dataset_infos.json and returns the features of each configuration.
func infoFeatures(raw []byte) (map[string]map[string]Feature, error) {
	var infos map[string]struct {
		Features map[string]Feature `json:"features"`
	}
	if err := json.Unmarshal(raw, &infos); err != nil {
		return nil, err
	}

	out := map[string]map[string]Feature{}
	for name, info := range infos {
		out[name] = info.Features
	}

	return out, nil
}

// named returns the features that name classes.
func named(all map[string]Feature) map[string]Feature {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(_ string, f Feature) bool { return len(f.Names) == 0 })
	return out
}

// readmeFeatures reads the YAML header of README.md: dataset_info, one or a list, has features, each with a name and a
// dtype of class_label: names: {'0': NAME, ...}.
func readmeFeatures(raw []byte) (map[string]map[string]Feature, error) {
	raw = bytes.ReplaceAll(bytes.TrimPrefix(raw, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
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

	out := map[string]map[string]Feature{}
	for _, i := range card.Info {
		out[i.Config] = map[string]Feature{}
		for _, f := range i.Features {
			out[i.Config][f.Name] = f.Type
		}
	}

	return out, nil
}

// described holds the features in README.md, one entry for each configuration of a data set.
type described []struct {
	Config   string `yaml:"config_name"`
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

// UnmarshalYAML reads the names of a class label from a list or from a map of numbers to names; other features have
// none.
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
