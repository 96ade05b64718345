package mlflow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
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

// meta is the content of metaFile.
type meta = map[string]any

const (
	active      = "active"
	localSource = 4 // a run of a program instead of an MLflow project
)

func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// Begin implements Store.
func (f folder) Begin(_ context.Context, id string, run Run) (string, error) {
	if id != "" {
		err := f.update(id, meta{"status": Running, "end_time": nil})
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return id, err
		}
	}

	if err := f.experiment("0", "Default"); err != nil { // MLflow requires it
		return "", err
	}

	experiment, err := f.experimentOf(run.Experiment)
	if err != nil {
		return "", err
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

	for kind, values := range map[string]map[string]string{"params": run.Params, "tags": run.Tags} {
		for key, value := range values {
			if err := writeFile(filepath.Join(dir, kind, filepath.FromSlash(Key(key))), []byte(value)); err != nil {
				return "", err
			}
		}
	}

	// this file makes the run visible
	return id, writeMeta(dir, meta{"artifact_uri": fileURI(filepath.Join(dir, "artifacts")), "end_time": nil,
		"entry_point_name": "", "experiment_id": experiment, "lifecycle_stage": active, "run_id": id,
		"run_name": run.Name, "source_name": "", "source_type": localSource, "source_version": "",
		"start_time": run.Start.UnixMilli(), "status": Running, "tags": []string{}, "user_id": run.Tags["mlflow.user"]})
}

// experimentOf finds or creates an experiment by its name. The id is derived from the name, so that two concurrent
// programs create the same experiment.
func (f folder) experimentOf(name string) (string, error) {
	list, err := filepath.Glob(filepath.Join(f.root, "*", metaFile))
	if err != nil {
		return "", fmt.Errorf("mlflow: %w", err)
	}

	for _, path := range list {
		if m, err := readMeta(path); err == nil && m["name"] == name {
			if m["lifecycle_stage"] != active {
				return "", fmt.Errorf("mlflow: the experiment %q of %s was deleted: restore it, or give another one "+
					"in MLFLOW_EXPERIMENT_NAME", name, f.root)
			}
			return fmt.Sprint(m["experiment_id"]), nil
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
	now := time.Now().UnixMilli()
	return writeMeta(dir, meta{"artifact_location": fileURI(dir), "creation_time": now, "experiment_id": id,
		"last_update_time": now, "lifecycle_stage": active, "name": name})
}

// run returns the folder of a run.
func (f folder) run(id string) (string, error) {
	list, err := filepath.Glob(filepath.Join(f.root, "*", id, metaFile))
	if err != nil || len(list) == 0 {
		return "", fmt.Errorf("mlflow: %s has no run %s: %w", f.root, id, fs.ErrNotExist)
	}
	return filepath.Dir(list[0]), nil
}

// update changes values in the metaFile of a run.
func (f folder) update(id string, values meta) error {
	dir, err := f.run(id)
	if err != nil {
		return err
	}

	m, err := readMeta(filepath.Join(dir, metaFile))
	if err != nil {
		return err
	}

	maps.Copy(m, values)
	return writeMeta(dir, m)
}

// Log implements Store.
func (f folder) Log(_ context.Context, id string, list []Metric) error {
	dir, err := f.run(id)
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
		_, err = fmt.Fprintf(file, "%d %s %d\n", m.At, strconv.FormatFloat(m.Value, 'g', -1, 64), m.Step)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("mlflow: %w", err)
		}
	}

	return nil
}

// End implements Store.
func (f folder) End(_ context.Context, id string, s Status, at time.Time) error {
	return f.update(id, meta{"status": s, "end_time": at.UnixMilli()})
}

func readMeta(path string) (meta, error) {
	m := meta{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, &m)
	}

	if err != nil {
		return nil, fmt.Errorf("mlflow: %s: %w", path, err)
	}

	return m, nil
}

func writeMeta(dir string, m meta) error {
	text, err := yaml.Marshal(m)
	if err != nil {
		return fmt.Errorf("mlflow: %w", err)
	}
	return writeFile(filepath.Join(dir, metaFile), text)
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
