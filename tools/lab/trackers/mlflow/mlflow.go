package mlflow

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// Run is the data for starting a run.
type Run struct {
	Experiment, Name string
	Start            time.Time
	Params, Tags     map[string]string
}

// Metric is one value.
type Metric struct {
	Key   string  `json:"key"` // see Key
	Value float64 `json:"value"`
	Step  int     `json:"step"`
	At    int64   `json:"timestamp"` // milliseconds since 1970
}

// Status is the state of a run, with the file store's number.
type Status int

// States of a run.
const (
	Running  Status = 1
	Finished Status = 3
	Failed   Status = 4
	Killed   Status = 5
)

func (s Status) String() string {
	return map[Status]string{Running: "RUNNING", Finished: "FINISHED", Failed: "FAILED", Killed: "KILLED"}[s]
}

// Store keeps runs. Its errors are one line.
type Store interface {
	// URI returns the normalized name of the store: a folder by its absolute path.
	URI() string
	// Begin creates a run, or continues the run with the given id. It returns the id, which is new if the store no
	// longer has that run. With an error the id is set if a run was created.
	Begin(ctx context.Context, id string, r Run) (string, error)
	// Log adds values to a run.
	Log(ctx context.Context, id string, list []Metric) error
	// End records the final state of a run.
	End(ctx context.Context, id string, s Status, at time.Time) error
}

// Open opens the store with a tracking URI: a folder (a path, or file:) or a tracking server (http:, https:).
// Credentials come from MLflow's own environment variables.
func Open(uri string) (Store, error) {
	scheme, rest, ok := strings.Cut(uri, ":")
	switch {
	case uri == "":
		return nil, fmt.Errorf("mlflow: needs a folder or a server, as in mlflow:mlruns or " +
			"mlflow:http://127.0.0.1:5000")
	case scheme == "http" || scheme == "https":
		return openServer(uri)
	case !ok || len(scheme) == 1 || strings.ContainsAny(scheme, `/\`): // C:\mlruns is a path too
		return openFolder(uri)
	case scheme != "file":
		return nil, fmt.Errorf("mlflow: %s is neither a folder nor a server; start mlflow server --backend-store-uri "+
			"%s and give its http address", uri, uri)
	}

	if host, _ := strings.CutPrefix(rest, "//"); host != rest {
		u, err := url.Parse(uri)
		if err != nil || u.Host != "" {
			return nil, fmt.Errorf("mlflow: %s is not a folder of this machine; expected a URI such as "+
				"file:///home/me/mlruns", uri)
		}
		rest = filepath.FromSlash(u.Path)
	}

	return openFolder(rest)
}

// maxKey is the largest length of a key in MLflow.
const maxKey = 250

// Key converts a name to the form that MLflow and every file system accept: letters, digits, blanks and _ - . /, with
// other characters replaced by _, and a relative path without . and .. in it. A changed name gets the beginning of its
// SHA-256 as a suffix, so that two names, such as names of domains, never become one metric.
func Key(name string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./ ", r) {
			return r
		}
		return '_'
	}, name)

	parts := strings.Split(clean, "/")
	for i, p := range parts {
		if p = strings.TrimSpace(p); strings.Trim(p, ".") == "" {
			p = strings.Repeat("_", max(1, len(p)))
		}
		parts[i] = p
	}

	clean = path.Join(parts...)
	if clean == name && len(clean) <= maxKey {
		return clean
	}

	end := fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:9]
	if most := maxKey - len(end); len(clean) > most {
		clean = strings.TrimRight(strings.ToValidUTF8(clean[:most], ""), "/ ")
	}

	return clean + end
}

// clip shortens a text to a number of bytes.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n-3], "") + "..."
}
