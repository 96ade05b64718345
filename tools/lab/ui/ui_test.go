package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

// made is a source of two runs; rounds is the number of rounds of the first.
type made struct {
	rounds, stamps atomic.Int64
	state          atomic.Value
	fails          atomic.Bool
}

func (m *made) source() Source {
	m.state.Store("unfinished")
	run := func(name string, n int, state string) page.Run {
		r := page.Run{RunJSON: results.RunJSON{Folder: name, State: results.State(state)}, Name: name,
			Curves: []page.Curve{{Metric: "loss"}}}
		for k := range n {
			r.Curves[0].Rounds = append(r.Curves[0].Rounds, k+1)
			r.Curves[0].Values = append(r.Curves[0].Values, float64(k))
		}
		return r
	}
	return Source{
		Version: func() uint64 { return uint64(m.stamps.Load()) },
		Report: func() (page.Report, error) {
			if m.fails.Load() {
				return page.Report{}, errors.New("the disk is gone")
			}
			return page.Report{Title: "t", Live: true, Metrics: []page.Metric{{Name: "loss"}}, Runs: []page.Run{
				run("a", int(m.rounds.Load()), m.state.Load().(string)), run("b", 2, "done")}}, nil
		},
		Details: func(id string) (json.RawMessage, error) {
			if id != "a" {
				return nil, ErrNoRun
			}
			return json.RawMessage(details), nil
		},
		Run: func(id string) (results.Run, error) {
			if id != "a" {
				return results.Run{}, ErrNoRun
			}
			return results.Run{}, nil
		},
	}
}

const details = `{"log":["round 1"]}`

// serve starts a server that checks for changes all the time.
func serve(t *testing.T, s Source) string {
	t.Helper()
	handler := New(s)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { handler.Watch(ctx, time.Millisecond); close(done) }()
	server := httptest.NewServer(handler)
	t.Cleanup(func() { stop(); <-done; server.CloseClientConnections(); server.Close() })
	return server.URL
}

func get(t *testing.T, address, host string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, address, nil)
	goldentest.NoError(t, err)
	if host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	goldentest.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	goldentest.NoError(t, err)
	return resp.StatusCode, string(body)
}

// A site whose name resolves to 127.0.0.1 (DNS rebinding) is refused, for any request.
func TestOtherHostsAreRefused(t *testing.T) {
	m := &made{}
	address := serve(t, m.source())
	for host, want := range map[string]int{"": 200, "localhost:70": 200, "localhost": 200, "[::1]:70": 200,
		"127.0.0.1": 200, "runs.example": 403, "runs.example:70": 403, "localhost.runs.example": 403,
		"127.0.0.1.runs.example": 403, "192.168.0.1": 403, "0.0.0.0": 403} {
		for _, path := range []string{"/", "/details?run=a"} {
			if got, body := get(t, address+path, host); got != want || want == 403 && strings.Contains(body, "<html") {
				t.Errorf("%s as %q: %d, want %d", path, host, got, want)
			}
		}
	}
	if got, _ := get(t, address+"/events", "runs.example"); got != 403 {
		t.Errorf("events for another host: %d", got)
	}
	if got, _ := get(t, address+"/../../etc/passwd", ""); got != 404 {
		t.Errorf("another path: %d", got)
	}
	for path, want := range map[string]int{"/": 405, "/samples?run=a&client=x": 404,
		"/samples?run=../a&client=0": 404} {
		if resp, err := http.Post(address+path, "text/plain", nil); err != nil || resp.StatusCode != want {
			t.Errorf("POST %s: %v, %v, want %d", path, resp, err, want)
		}
	}
	// a web page of another site starts no work
	req, err := http.NewRequest(http.MethodPost, address+"/samples?run=a&client=0", nil)
	goldentest.NoError(t, err)
	req.Header.Set("Origin", "http://runs.example")
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("POST from another site: %v, %v", resp, err)
	}
	if got, _ := get(t, address+"/samples?run=a&client=0", ""); got != http.StatusMethodNotAllowed {
		t.Errorf("GET of test images: %d", got)
	}
}

// A request with a body that does not arrive is refused, and holds no page.
func TestStalledBody(t *testing.T) {
	m := &made{}
	address := serve(t, m.source())
	c, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	goldentest.NoError(t, err)
	defer c.Close()
	fmt.Fprint(c, "POST /samples HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\n\r\nrun=a")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "400") {
		t.Errorf("%q, %v", line, err)
	}
	if got, _ := get(t, address, ""); got != http.StatusOK {
		t.Error(got)
	}
}

func TestDetails(t *testing.T) {
	m := &made{}
	address := serve(t, m.source())
	if got, body := get(t, address+"/details?run=a", ""); got != 200 || body != details {
		t.Errorf("%d %s", got, body)
	}
	if got, body := get(t, address+"/details?run=../a", ""); got != 404 || !strings.Contains(body, "no such run") {
		t.Errorf("%d %s", got, body)
	}
	m.fails.Store(true)
	m.stamps.Add(1)
	if got, body := get(t, address+"/", ""); got != 500 || !strings.Contains(body, "the disk is gone") {
		t.Errorf("a report that cannot be made: %d %s", got, body)
	}
}

// stream reads events.
type stream struct {
	*testing.T
	lines *bufio.Scanner
}

func listen(t *testing.T, address string) *stream {
	t.Helper()
	req, err := http.NewRequestWithContext(busytest.Context(t), http.MethodGet, address, nil)
	goldentest.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	goldentest.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("events are %s", kind)
	}
	return &stream{t, bufio.NewScanner(resp.Body)}
}

func (s *stream) next() (event, id, data string) {
	s.Helper()
	for s.lines.Scan() {
		switch key, value, _ := strings.Cut(s.lines.Text(), ": "); {
		case key == "event":
			event = value
		case key == "id":
			id = value
		case key == "data":
			data = value
		case s.lines.Text() == "" && event != "":
			return event, id, data
		}
	}
	s.Fatal("no event came")
	return "", "", ""
}

// A page receives exactly the changed runs. It must reload after the end of a run, and if it was loaded before the last
// change.
func TestEvents(t *testing.T) {
	m := &made{}
	m.rounds.Store(1)
	address := serve(t, m.source())
	_, html := get(t, address, "")
	if !strings.Contains(html, `"live":true,"version":"0"`) {
		t.Fatal("the page does not say its version")
	}
	s := listen(t, address+"/events?since=0")
	m.rounds.Store(3)
	m.stamps.Add(1)
	event, id, data := s.next()
	var runs []struct {
		Folder string
		Curves []struct{ Y []float64 }
	}
	if err := json.Unmarshal([]byte(data), &runs); err != nil || event != "runs" || id != "1" || len(runs) != 1 ||
		runs[0].Folder != "a" || len(runs[0].Curves[0].Y) != 3 {
		t.Errorf("%s %s %s (%v)", event, id, data, err)
	}
	m.state.Store("done")
	m.stamps.Add(1)
	if event, id, _ := s.next(); event != "page" || id != "2" {
		t.Errorf("a run that ended gives %s %s", event, id)
	}
	if event, id, _ := listen(t, address+"/events?since=1").next(); event != "page" || id != "2" {
		t.Errorf("an older page hears %s %s", event, id)
	}
}

// TestWatch: a page that is woken while it opens does not hang. The pause after a look of six seconds is 30 s, and then
// a second again: 3 looks up to 38 s, 21 up to 59 s.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, looks := (&made{}).source(), 0
		source.Version = func() uint64 {
			if looks++; looks == 4 { // the second of the last Watch
				time.Sleep(6 * time.Second)
			}
			return 0
		}
		s := New(source)
		s.events(waking{nil, s}, httptest.NewRequest("GET", "/events?since=old", nil))
		s.readers[nil] = true
		if s.watch(59500 * time.Millisecond); looks != 2+24 {
			t.Errorf("%d looks", looks)
		}
	})
}

// waking is the writer of a page that Watch wakes once while it opens, and that is closed then.
type waking struct {
	http.ResponseWriter
	*Server
}

func (w waking) Header() http.Header     { w.watch(1500 * time.Millisecond); return http.Header{} }
func (waking) Write([]byte) (int, error) { return 0, io.EOF }

func (s *Server) watch(limit time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	go func() { busytest.Delay(limit); stop() }()
	s.Watch(ctx, time.Second)
}
