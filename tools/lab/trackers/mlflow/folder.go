package mlflow

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"promptfed/runtime/atomicfile"
)

// folder is MLflow's file store. It has a folder for each experiment, which has a folder for each run. A run's folder
// has a file for each parameter and tag, and for each metric a file with a line "milliseconds value step" per value.
type folder struct{ root string }

func openFolder(root string) (Store, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("mlflow: %w", err)
	}
	if info, err := os.Stat(root); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("mlflow: %s is a file; name a folder", root)
	}
	return folder{root}, nil
}

// URI implements Store.
func (f folder) URI() string { return f.root }

const metaFile = "meta.yaml"

// experimentMeta and runMeta are the contents of metaFile for an experiment and for a run.
type experimentMeta struct {
	ArtifactLocation string `yaml:"artifact_location"`
	CreationTime     int64  `yaml:"creation_time"`
	ID               string `yaml:"experiment_id"`
	LastUpdateTime   int64  `yaml:"last_update_time"`
	LifecycleStage   string `yaml:"lifecycle_stage"`
	Name             string `yaml:"name"`
}

type runMeta struct {
	ArtifactURI    string   `yaml:"artifact_uri"`
	EndTime        *int64   `yaml:"end_time"`
	EntryPointName string   `yaml:"entry_point_name"`
	ExperimentID   string   `yaml:"experiment_id"`
	LifecycleStage string   `yaml:"lifecycle_stage"`
	ID             string   `yaml:"run_id"`
	Name           string   `yaml:"run_name"`
	SourceName     string   `yaml:"source_name"`
	SourceType     int      `yaml:"source_type"`
	SourceVersion  string   `yaml:"source_version"`
	StartTime      int64    `yaml:"start_time"`
	Status         Status   `yaml:"status"`
	Tags           []string `yaml:"tags"`
	UserID         string   `yaml:"user_id"`
}

const (
	active      = "active"
	localSource = 4 // a run of a program instead of an MLflow project
	defaultID   = "0"
	defaultName = "Default"
)

func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// Begin implements Store.
func (f folder) Begin(_ context.Context, id string, r Run) (string, error) {
	if id != "" {
		dir, meta, err := f.run(id)
		if err == nil {
			meta.Status, meta.EndTime = Running, nil
			return id, writeMeta(dir, meta)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	if err := f.experiment(defaultID, defaultName); err != nil { // MLflow requires it
		return "", err
	}
	experiment := defaultID
	if r.Experiment != defaultName {
		var err error
		if experiment, err = f.experimentOf(r.Experiment); err != nil {
			return "", err
		}
	}
	var b [16]byte
	rand.Read(b[:])
	id = hex.EncodeToString(b[:])
	dir := filepath.Join(f.root, experiment, id)
	for _, d := range []string{"metrics", "params", "tags", "artifacts"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return "", fmt.Errorf("mlflow: %w", err)
		}
	}
	for kind, values := range map[string]map[string]string{"params": r.Params, "tags": r.Tags} {
		for key, value := range values {
			if err := writeFile(filepath.Join(dir, kind, filepath.FromSlash(Key(key))), []byte(value)); err != nil {
				return "", err
			}
		}
	}
	meta := runMeta{ArtifactURI: fileURI(filepath.Join(dir, "artifacts")), ExperimentID: experiment,
		LifecycleStage: active, ID: id, Name: r.Name, SourceType: localSource, StartTime: r.Start.UnixMilli(),
		Status: Running, Tags: []string{}}
	if u, err := user.Current(); err == nil {
		meta.UserID = u.Username
	}
	return id, writeMeta(dir, meta) // this file makes the run visible
}

// experimentOf finds or creates an experiment by its name. The id is derived from the name, so that two concurrent
// programs create the same experiment.
func (f folder) experimentOf(name string) (string, error) {
	list, err := filepath.Glob(filepath.Join(f.root, "*", metaFile))
	if err != nil {
		return "", fmt.Errorf("mlflow: %w", err)
	}
	for _, path := range list {
		var m experimentMeta
		if text, err := os.ReadFile(path); err == nil && yaml.Unmarshal(text, &m) == nil && m.Name == name {
			if m.LifecycleStage != active {
				return "", fmt.Errorf("mlflow: the experiment %q of %s was deleted: restore it, or give another one "+
					"in MLFLOW_EXPERIMENT_NAME", name, f.root)
			}
			return m.ID, nil
		}
	}
	sum := sha256.Sum256([]byte(name))
	id := strconv.FormatUint(1e17+binary.BigEndian.Uint64(sum[:])%9e17, 10) // 18 digits, like MLflow's ids
	return id, f.experiment(id, name)
}

// experiment creates an experiment unless it exists.
func (f folder) experiment(id, name string) error {
	dir := filepath.Join(f.root, id)
	if _, err := os.Stat(filepath.Join(dir, metaFile)); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mlflow: %w", err)
	}
	now := time.Now().UnixMilli()
	return writeMeta(dir, experimentMeta{fileURI(dir), now, id, now, active, name})
}

// run finds a run by its id.
func (f folder) run(id string) (dir string, m runMeta, err error) {
	list, err := filepath.Glob(filepath.Join(f.root, "*", id, metaFile))
	if err != nil || len(list) == 0 {
		return "", m, fmt.Errorf("mlflow: %s has no run %s: %w", f.root, id, fs.ErrNotExist)
	}
	text, err := os.ReadFile(list[0])
	if err == nil {
		err = yaml.Unmarshal(text, &m)
	}
	if err != nil {
		return "", m, fmt.Errorf("mlflow: %s: %w", list[0], err)
	}
	return filepath.Dir(list[0]), m, nil
}

// Log implements Store.
func (f folder) Log(_ context.Context, id string, list []Metric) error {
	dir, _, err := f.run(id)
	if err != nil {
		return err
	}
	for _, m := range list {
		path := filepath.Join(dir, "metrics", filepath.FromSlash(m.Key))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("mlflow: %w", err)
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("mlflow: %w", err)
		}
		_, err = fmt.Fprintf(file, "%d %s %d\n", m.At.UnixMilli(), strconv.FormatFloat(m.Value, 'g', -1, 64), m.Step)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("mlflow: %w", err)
		}
	}
	return nil
}

// End implements Store.
func (f folder) End(_ context.Context, id string, s Status, at time.Time) error {
	dir, m, err := f.run(id)
	if err != nil {
		return err
	}
	end := at.UnixMilli()
	m.Status, m.EndTime = s, &end
	return writeMeta(dir, m)
}

func writeMeta(dir string, v any) error {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("mlflow: %w", err)
	}
	return writeFile(filepath.Join(dir, metaFile), b.Bytes())
}

func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("mlflow: %w", err)
	}
	if err := atomicfile.Write(path, atomicfile.Bytes(text)); err != nil {
		return fmt.Errorf("mlflow: %w", err)
	}
	return nil
}
