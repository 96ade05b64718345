package trackers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/version"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/trackers/mlflow"
	"promptfed/tools/lab/trackers/numbers"
	"promptfed/tools/promptfed/runfolder"
)

// tracked is one store in runfolder.MLflowFile, by its URI.
type tracked struct {
	Run    string `json:"run"`
	Rounds int    `json:"rounds"`
	Ended  bool   `json:"ended"` // the store has the summary
}

// closeTime is the time that the end of a run waits for its tracking server.
const closeTime = 15 * time.Second

// tracker sends rounds to MLflow from its own goroutine, so that a slow or unavailable server does not delay a run. It
// sends failed rounds again with the next round.
type tracker struct {
	store mlflow.Store
	run   Run
	warn  func(string)
	state tracked

	ctx    context.Context // for sending
	cancel context.CancelFunc
	wake   chan struct{}
	done   chan struct{}
	begun  bool

	mu      sync.Mutex
	pending []sent
	ended   *ended
}

// sent is a round and its time.
type sent struct {
	record.Record
	at time.Time
}

// ended is the end of a run.
type ended struct {
	status mlflow.Status
	at     time.Time
}

// openTracker opens a store for a run and reads the store's progress from its file.
func openTracker(uri string, r Run) (*tracker, error) {
	store, err := mlflow.Open(uri)
	if err != nil {
		return nil, err
	}
	all, err := readTracked(r.Dir)
	return &tracker{store: store, run: r, state: all[store.URI()]}, err
}

// readTracked reads runfolder.MLflowFile: the state of each store, by its URI.
func readTracked(dir string) (map[string]tracked, error) {
	path, out := filepath.Join(dir, runfolder.MLflowFile), map[string]tracked{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}

	if err == nil {
		err = json.Unmarshal(text, &out)
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to send the run as a new one", path, err)
	}

	return out, nil
}

func newTracker(uri string, r Run, warn func(string)) (*tracker, error) {
	t, err := openTracker(uri, r)
	if err != nil {
		return nil, err
	}

	t.warn, t.wake, t.done = warn, make(chan struct{}, 1), make(chan struct{})
	t.ctx, t.cancel = context.WithCancel(context.Background()) // sending outlives an interrupted run
	t.wake <- struct{}{}                                       // show the run from its beginning
	go t.loop()
	return t, nil
}

func (t *tracker) loop() {
	defer close(t.done)
	warned := false
	for range t.wake {
		if err := t.send(t.ctx); err != nil && !warned {
			warned = true
			t.warn(fmt.Sprintf("%v; the run continues, missing rounds are sent again after each round, and promptfed "+
				"runs log %s --to %s%s sends them later", err, t.run.Dir, MLflow, t.store.URI()))
		}
	}
}

func (t *tracker) round(r record.Record) {
	t.mu.Lock()
	t.pending = append(t.pending, sent{r, time.Now()})
	t.mu.Unlock()
	t.nudge()
}

// nudge makes the goroutine send pending rounds, without waiting for it.
func (t *tracker) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *tracker) close(err error) error {
	status := mlflow.Failed
	switch {
	case err == nil:
		status = mlflow.Finished
	case errors.Is(err, context.Canceled):
		status = mlflow.Killed
	}

	t.mu.Lock()
	t.ended = &ended{status, time.Now()}
	t.mu.Unlock()
	defer time.AfterFunc(closeTime, t.cancel).Stop()
	t.nudge() // a full channel already holds a later wake-up
	close(t.wake)
	<-t.done
	t.cancel()
	return nil
}

// log sends the numbers of a round or of a summary that belong to no single client. The step is the round, counted from
// 1.
func (t *tracker) log(ctx context.Context, run string, list []numbers.Number, step int, at time.Time) error {
	var out []mlflow.Metric
	for _, n := range list {
		if n.Client == numbers.NoClient {
			out = append(out, mlflow.Metric{Key: mlflow.Key(n.Name("/")), Value: n.Value, Step: step,
				At: at.UnixMilli()})
		}
	}

	return t.store.Log(ctx, run, out)
}

// send sends pending rounds. It records accepted rounds. A round whose record is lost, since the program is killed or
// the store's answer does not arrive, is sent again.
func (t *tracker) send(ctx context.Context) error {
	state := t.state
	if !t.begun {
		id, err := t.store.Begin(ctx, state.Run, t.run.mlflow())
		if id != "" && id != state.Run {
			state = tracked{Run: id}
			if err := t.save(state); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		t.begun = true
	}

	for {
		t.mu.Lock()
		pending, end := t.pending, t.ended
		t.mu.Unlock()
		if len(pending) == 0 {
			if end == nil {
				return nil
			}
			return t.end(ctx, state, *end)
		}

		if next := pending[0]; next.Round >= state.Rounds {
			line, err := json.Marshal(next.Record)
			if err != nil {
				return err
			}

			list, err := numbers.Parse(line, "round")
			if err == nil {
				err = t.log(ctx, state.Run, list, next.Round+1, next.at)
			}

			state.Rounds, state.Ended = next.Round+1, false
			if err == nil {
				err = t.save(state)
			}

			if err != nil {
				return err
			}
		}

		t.mu.Lock()
		t.pending = t.pending[1:]
		t.mu.Unlock()
	}
}

// end sends the summary once, and the outcome of the run.
func (t *tracker) end(ctx context.Context, state tracked, outcome ended) error {
	if outcome.status == mlflow.Finished && !state.Ended {
		list, err := numbers.ParseSummary(t.run.Dir)
		if err == nil {
			err = t.log(ctx, state.Run, list, state.Rounds, outcome.at)
		}
		if state.Ended = true; err == nil {
			err = t.save(state)
		}
		if err != nil {
			return err
		}
	}

	return t.store.End(ctx, state.Run, outcome.status, outcome.at)
}

// saving guards changes of the file, because a run may have several stores.
var saving sync.Mutex

func (t *tracker) save(s tracked) error {
	saving.Lock()
	defer saving.Unlock()
	all, err := readTracked(t.run.Dir)
	if err != nil {
		return err
	}

	t.state, all[t.store.URI()] = s, s
	return atomicfile.Write(filepath.Join(t.run.Dir, runfolder.MLflowFile), atomicfile.JSON(all, "  "))
}

// SendToMLflow sends the rounds of a run folder that the store does not have yet.
func SendToMLflow(ctx context.Context, uri string, r Run, rounds []record.Record, done bool) (int, error) {
	tracker, err := openTracker(uri, r)
	if err != nil {
		return 0, err
	}

	for _, r := range rounds {
		tracker.pending = append(tracker.pending, sent{r, time.Now()})
	}

	tracker.ended = &ended{mlflow.Failed, time.Now()}
	if done {
		tracker.ended.status = mlflow.Finished
	}

	before := tracker.state
	err = tracker.send(ctx)
	if before.Run != tracker.state.Run {
		before.Rounds = 0
	}

	return tracker.state.Rounds - before.Rounds, err
}

// mlflow returns MLflow's data about a run other than its numbers. The runs of a sweep form one experiment with the
// sweep's name.
func (r Run) mlflow() mlflow.Run {
	experiment, name := r.Name, fmt.Sprintf("%s seed %d", r.Name, r.Seed)
	dir, _ := filepath.Abs(r.Dir)
	for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
		if p, err := configs.ReadPlan(up); err == nil {
			experiment, name = p.Name, filepath.ToSlash(strings.TrimPrefix(dir, up)[1:])
			break
		}
	}

	out := mlflow.Run{Experiment: cmp.Or(os.Getenv("MLFLOW_EXPERIMENT_NAME"), experiment, "promptfed"), Name: name,
		Start: time.Now(), Params: params(r.Config), Tags: map[string]string{"mlflow.runName": name,
			"mlflow.source.name": "promptfed", "mlflow.source.type": "LOCAL",
			"mlflow.source.git.commit": version.Commit(), "promptfed.version": version.Version(),
			"promptfed.folder": dir, "promptfed.method": r.Method, "promptfed.seed": strconv.FormatUint(r.Seed, 10)}}

	if u, err := user.Current(); err == nil {
		out.Tags["mlflow.user"] = u.Username
	}

	if r.Digest != "" {
		out.Tags["promptfed.data_digest"] = r.Digest
	}

	return out
}

// params returns the keys of a configuration, such as train.lr, with their values as one-line YAML.
func params(config []byte) map[string]string {
	out := map[string]string{}
	for _, s := range results.Settings(string(config)) {
		if s.Value != "{}" {
			out[s.Key] = s.Value
		}
	}
	return out
}
