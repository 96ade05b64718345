// Package ui serves the report page over HTTP to this machine and keeps it current during runs. Changes of run folders
// reach open pages as server-sent events.
package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/samples"
	"promptfed/tools/promptfed/hostguard"
)

// Source supplies the page. Its functions are never called concurrently.
type Source struct {
	Version func() uint64                            // changes whenever the data changes
	Report  func() (page.Report, error)              // with Live set
	Details func(id string) (json.RawMessage, error) // page.Run.Details; ErrNoRun if the run does not exist
	Run     func(id string) (results.Run, error)     // a copy; likewise
}

// ErrNoRun is the error for a run outside the report.
var ErrNoRun = fmt.Errorf("no such run")

// heartbeat is the interval of messages to an open page, so that both sides notice a lost connection.
const heartbeat = 15 * time.Second

// Server is an http.Handler for the page, its changes, the details of runs and their test images.
type Server struct {
	source  Source
	handler http.Handler

	classifies chan struct{} // holds an element while test images are classified

	mu      sync.Mutex // guards the source and the fields below
	stamp   uint64
	now     *page.Served
	readers map[chan struct{}]bool // open pages; a change wakes each of them
}

// New returns a server.
func New(source Source) *Server {
	mux := http.NewServeMux()
	s := &Server{source: source, handler: hostguard.Loopback(mux), classifies: make(chan struct{}, 1),
		readers: map[chan struct{}]bool{}}
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /details", s.details)
	mux.HandleFunc("POST /samples", s.samples) // no GET, which other web sites may send
	return s
}

// ServeHTTP implements http.Handler. It answers only requests whose host is this machine. Otherwise a foreign page
// could read the runs through a host name that resolves to this machine.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	s.handler.ServeHTTP(w, r)
}

// Watch checks for changes while pages are open, until the context ends.
func (s *Server) Watch(ctx context.Context, every time.Duration) {
	pause := every
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}

		s.mu.Lock()
		if len(s.readers) > 0 {
			began := time.Now()
			if _, err := s.current(); err == nil {
				for wake := range s.readers {
					select {
					case wake <- struct{}{}:
					default: // already awake
					}
				}
			}
			pause = max(every, 5*time.Since(began)) // large trees and slow drives are looked at less often
		}

		s.mu.Unlock()
	}
}

// current returns the current page. The caller holds the lock.
func (s *Server) current() (*page.Served, error) {
	stamp := s.source.Version()
	if s.now != nil && stamp == s.stamp {
		return s.now, nil
	}

	r, err := s.source.Report()
	if err != nil {
		return nil, err
	}

	r.Version = strconv.FormatUint(stamp, 36)
	now, err := page.Serve(r)
	if err != nil {
		return nil, err
	}

	s.stamp, s.now = stamp, now
	return now, nil
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	now, err := s.current()
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	hostguard.Extend(w)
	w.Write(now.HTML)
}

func (s *Server) details(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	_, err := s.current()
	var body json.RawMessage
	if err == nil {
		body, err = s.source.Details(r.URL.Query().Get("run"))
	}

	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	hostguard.Extend(w)
	w.Write(body)
}

// samples classifies test images of a client, for one request at a time. A request names no file and has no body.
func (s *Server) samples(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // otherwise the server reads the body before it answers
		http.Error(w, "this request takes no body: name run, client and view in its address", http.StatusBadRequest)
		return
	}

	hostguard.Extend(w)
	select {
	case s.classifies <- struct{}{}:
		defer func() { <-s.classifies }()
	case <-r.Context().Done():
		return
	}

	query := r.URL.Query()
	s.mu.Lock()
	run, err := s.source.Run(query.Get("run"))
	s.mu.Unlock()
	var client int
	if err == nil {
		client, err = strconv.Atoi(query.Get("client"))
	}

	var found *samples.Samples
	if err == nil {
		found, err = samples.Of(r.Context(), run, client, query.Get("view"))
	}

	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	hostguard.Extend(w)
	json.NewEncoder(w).Encode(found)
}

// events sends the page the differences between its runs and the current runs, from now on.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	wake := make(chan struct{}, 1)
	since := cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("since"))
	s.mu.Lock()
	known, err := s.current()
	if err != nil || since != known.Version {
		known = nil // the page has an older version
		wake <- struct{}{}
	}

	s.readers[wake] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.readers, wake)
		s.mu.Unlock()
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	const nothing = ": \n\n"
	message := nothing
	for {
		hostguard.Extend(w)
		if _, err := io.WriteString(w, message); err != nil || flush.Flush() != nil {
			return
		}

		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
		case <-wake:
		}

		s.mu.Lock()
		now := s.now
		s.mu.Unlock()
		if message = nothing; now == nil { // the first page does not exist yet
			continue
		}

		switch runs, all := now.Since(known); {
		case all:
			message = fmt.Sprintf("id: %s\nevent: page\ndata: \n\n", now.Version)
		case runs != nil:
			message = fmt.Sprintf("id: %s\nevent: runs\ndata: %s\n\n", now.Version, runs)
		}

		known = now
	}
}
