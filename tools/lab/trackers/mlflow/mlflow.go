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

// Run is what a run is begun with.
type Run struct {
	Experiment, Name string
	Start            time.Time
	Params, Tags     map[string]string
}

// Metric is one value.
type Metric struct {
	Key   string // see Key
	Value float64
	Step  int
	At    time.Time
}

// Status says how far a run is, by the number that the file store has for it.
type Status int

// Statuses of a run.
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
	// URI names the store, in one way: a folder by its absolute path.
	URI() string
	// Begin makes a run, or goes on with the one that has the id. It gives the id, another one where the store does not
	// have that run any more; a run may have been made even with an error, and has an id then.
	Begin(ctx context.Context, id string, r Run) (string, error)
	// Log adds values to a run.
	Log(ctx context.Context, id string, list []Metric) error
	// End says how a run ended.
	End(ctx context.Context, id string, s Status, at time.Time) error
}

// Open opens the store that a tracking URI names: a folder (a path, or file:) or a tracking server (http:, https:),
// whose credentials are those of MLflow's own variables.
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

// maxKey is how long a key may be in MLflow.
const maxKey = 250

// Key is a name as MLflow and every file system take it: letters, digits, blanks and _ - . /, where other signs become
// _; a relative path without . and .. in it. A name that this changes has the beginning of its SHA-256 behind it, so
// that two names, such as those of domains, never become one metric.
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

// clip cuts a text to a number of bytes.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n-3], "") + "..."
}
