package trackers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"promptfed/federation/engine/record"
)

// tracking is a tracking server with simulated outages. It returns the received steps of the loss in their order.
type tracking struct {
	down  atomic.Bool
	calls atomic.Int64
	steps chan int
	last  atomic.Value // status
}

func (f *tracking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer f.calls.Add(1)
	if f.down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var in struct {
		Status  string
		Metrics []struct {
			Key  string
			Step int
		}
	}
	json.NewDecoder(bytes.NewReader(body)).Decode(&in)
	for _, m := range in.Metrics {
		if m.Key == "loss" || m.Key == "summary/last" {
			f.steps <- m.Step
		}
	}
	if in.Status != "" {
		f.last.Store(in.Status)
	}
	fmt.Fprint(w, `{"experiment": {"experiment_id": "1"}, "run": {"info": {"run_id": "7"}}}`)
}

// RoundTrip makes the server the transport of HTTP clients.
func (f *tracking) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w.Result(), nil
}

// An outage in the middle causes one warning, and the missed rounds follow with the next round, in order and once. A
// resumed run sends its earlier rounds again, and none arrives twice. Time
// is virtual and requests need no network, so that no request is late.
func TestServerThatIsDown(t *testing.T) {
	synctest.Test(t, serverThatIsDown)
}

func serverThatIsDown(t *testing.T) {
	f := &tracking{steps: make(chan int, 100)}
	defer func(was http.RoundTripper) { http.DefaultTransport = was }(http.DefaultTransport)
	http.DefaultTransport = f
	const address = "http://tracking.example"
	r := Run{Dir: t.TempDir(), Name: "x", Config: []byte("train: {lr: 0.1, steps: [1, 2]}\n")}
	var said []string
	l, err := Open([]string{MLflow + address}, r, func(line string) { said = append(said, line) })
	if err != nil {
		t.Fatal(err)
	}
	l.Round(record.Record{Round: 0, Loss: new(1.)})
	synctest.Wait()
	f.down.Store(true)
	for i := 1; i < 4; i++ {
		n := f.calls.Load()
		l.Round(record.Record{Round: i, Loss: new(1.)})
		if synctest.Wait(); f.calls.Load() == n {
			t.Errorf("round %d makes no call", i)
		}
	}
	f.down.Store(false)
	l.Round(record.Record{Round: 4, Loss: new(1.)})
	if synctest.Wait(); len(f.steps) != 5 {
		t.Errorf("%d rounds have come", len(f.steps))
	}
	if err := l.Close(context.Canceled); err != nil || f.last.Load() != "KILLED" {
		t.Error(err, f.last.Load())
	}
	if len(said) != 1 || strings.Contains(said[0], "\n") || !strings.Contains(said[0], "promptfed runs log "+r.Dir) {
		t.Errorf("said %q", said)
	}
	err = os.WriteFile(filepath.Join(r.Dir, record.SummaryFile), []byte(`{"format":2,"last":0.5}`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = Open([]string{MLflow + address + "/"}, r, func(line string) { t.Error(line) }); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		l.Round(record.Record{Round: i, Loss: new(1.)})
	}
	if err := l.Close(nil); err != nil || f.last.Load() != "FINISHED" {
		t.Error(err, f.last.Load())
	}
	n, err := SendToMLflow(context.Background(), address, r, []record.Record{{Round: 0}, {Round: 1}}, true)
	if err != nil || n != 0 {
		t.Errorf("sent %d rounds again: %v", n, err)
	}
	close(f.steps)
	var steps []int
	for s := range f.steps {
		steps = append(steps, s)
	}
	if want := []int{1, 2, 3, 4, 5, 6, 6}; !slices.Equal(steps, want) { // the summary has the step of the last round
		t.Errorf("steps %v, want %v", steps, want)
	}
}

func TestParams(t *testing.T) {
	got := params([]byte("name: x\ntrain: {lr: 0.1}\nwith: [a, b]\noptions:\n  n: [4]\n  deep: {x: true}\nempty: {}\n"))
	want := map[string]string{"name": "x", "train.lr": "0.1", "with": "[a, b]", "options.n": "[4]",
		"options.deep.x": "true"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCheck(t *testing.T) {
	for target, word := range map[string]string{"wandb": "wandb sync", "mlflow:": "needs a folder", "csv": "expected"} {
		if err := Check([]string{TensorBoard, target}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if err := Check([]string{TensorBoard, MLflow + "mlruns", MLflow + "http://127.0.0.1:1"}); err != nil {
		t.Error(err)
	}
}
