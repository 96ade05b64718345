package mlflow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"promptfed/runtime/convert"
)

// Limits of one call (MLflow's REST API, log-batch), and limits of values in bytes.
const (
	metricsOfCall = 1000
	paramsOfCall  = 100
	maxParam      = 6000
	maxTag        = 5000
	callTime      = 10 * time.Second
	maxReply      = 1 << 20
)

// server is an MLflow tracking server.
type server struct {
	url    string
	client *http.Client
}

func openServer(address string) (Store, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("mlflow: %s is not a server address, such as http://127.0.0.1:5000", address)
	}

	if u.User != nil {
		return nil, fmt.Errorf("mlflow: %s: give user and password in MLFLOW_TRACKING_USERNAME and "+
			"MLFLOW_TRACKING_PASSWORD, not in the address, which is written to files", u.Redacted())
	}

	return &server{strings.TrimSuffix(address, "/"), &http.Client{Timeout: callTime}}, nil
}

// URI implements Store.
func (s *server) URI() string { return s.url }

// replyError is a server's answer to a rejected call.
type replyError struct {
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

func (e replyError) Error() string { return e.Code + ": " + e.Message }

// isCode reports whether an error is a server's answer with the given code.
func isCode(err error, code string) bool {
	e := replyError{}
	return errors.As(err, &e) && e.Code == code
}

// notThere is the error code for an experiment or a run that a server does not have.
const notThere = "RESOURCE_DOES_NOT_EXIST"

// call makes a call with a body, or a GET with values, and decodes its reply into out.
func (s *server) call(ctx context.Context, method, name string, query url.Values, body, out any) error {
	address := s.url + "/api/2.0/mlflow/" + name
	if query != nil {
		address += "?" + query.Encode()
	}

	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return fmt.Errorf("mlflow: %w", err)
		}
	}

	r, err := http.NewRequestWithContext(ctx, method, address, &sent)
	if err != nil {
		return fmt.Errorf("mlflow: %w", err)
	}

	r.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("MLFLOW_TRACKING_TOKEN"); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	} else if user := os.Getenv("MLFLOW_TRACKING_USERNAME"); user != "" {
		r.SetBasicAuth(user, os.Getenv("MLFLOW_TRACKING_PASSWORD"))
	}

	reply, err := s.client.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address, which the message already has
		}
		return fmt.Errorf("mlflow: %s: %w", s.url, err)
	}
	defer reply.Body.Close()

	text, err := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err != nil {
		return fmt.Errorf("mlflow: %s: %w", s.url, err)
	}

	if reply.StatusCode != http.StatusOK {
		e := replyError{Code: reply.Status, Message: name}
		json.Unmarshal(text, &e)
		return fmt.Errorf("mlflow: %s: %w", s.url, e)
	}

	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("mlflow: %s does not answer %s with JSON; give the address of an MLflow server", s.url, name)
	}

	return nil
}

// post makes a call whose reply does not matter.
func (s *server) post(ctx context.Context, name string, body map[string]any) error {
	return s.call(ctx, http.MethodPost, name, nil, body, &struct{}{})
}

type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func pairs(m map[string]string, most int) []pair {
	return convert.Slice(slices.Sorted(maps.Keys(m)), func(k string) pair { return pair{Key(k), clip(m[k], most)} })
}

// Begin implements Store.
func (s *server) Begin(ctx context.Context, id string, run Run) (string, error) {
	if id != "" {
		err := s.post(ctx, "runs/update", map[string]any{"run_id": id, "status": Running.String()})
		if err == nil { // a changed parameter keeps its first value, as in MLflow
			err = s.params(ctx, id, run.Params)
			if errors.As(err, new(replyError)) {
				err = nil
			}
			return id, err
		}
		if !isCode(err, notThere) {
			return id, err
		}
	}

	experiment, err := s.experiment(ctx, run.Experiment)
	if err != nil {
		return "", err
	}

	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			}
		}
	}
	err = s.call(ctx, http.MethodPost, "runs/create", nil, map[string]any{"experiment_id": experiment,
		"run_name": run.Name, "start_time": run.Start.UnixMilli(), "tags": pairs(run.Tags, maxTag)}, &made)
	if id = made.Run.Info.ID; err != nil || id == "" {
		return "", cmp.Or(err, fmt.Errorf("mlflow: %s: the new run has no run_id", s.url))
	}

	return id, s.params(ctx, id, run.Params)
}

func (s *server) params(ctx context.Context, id string, m map[string]string) error {
	return batches(ctx, s, id, "params", pairs(m, maxParam), paramsOfCall)
}

// batches logs a list of values in calls of at most so many.
func batches[T any](ctx context.Context, s *server, id, kind string, list []T, most int) error {
	for part := range slices.Chunk(list, most) {
		if err := s.post(ctx, "runs/log-batch", map[string]any{"run_id": id, kind: part}); err != nil {
			return err
		}
	}
	return nil
}

// experiment finds or creates an experiment by its name.
func (s *server) experiment(ctx context.Context, name string) (string, error) {
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		}
	}
	find := func() (string, error) {
		query := url.Values{"experiment_name": {name}}
		err := s.call(ctx, http.MethodGet, "experiments/get-by-name", query, nil, &found)
		return found.Experiment.ID, err
	}

	id, err := find()
	if !isCode(err, notThere) {
		return id, err
	}

	var made struct {
		ID string `json:"experiment_id"`
	}
	err = s.call(ctx, http.MethodPost, "experiments/create", nil, map[string]any{"name": name}, &made)
	if isCode(err, "RESOURCE_ALREADY_EXISTS") { // a concurrent run created it
		return find()
	}

	return made.ID, err
}

// Log implements Store.
func (s *server) Log(ctx context.Context, id string, list []Metric) error {
	return batches(ctx, s, id, "metrics", list, metricsOfCall)
}

// End implements Store.
func (s *server) End(ctx context.Context, id string, status Status, at time.Time) error {
	return s.post(ctx, "runs/update", map[string]any{"run_id": id, "status": status.String(),
		"end_time": at.UnixMilli()})
}
