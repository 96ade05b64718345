// Package serving classifies images that are posted over HTTP, with a file that promptfed export wrote.
package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"time"

	"promptfed/federation/experiment/trained"
	"promptfed/models/preprocess"
)

// Bounds of what others may cost.
const (
	maxBody = 32 << 20         // bytes of an image
	maxWait = 10 * time.Second // for a turn
	maxRead = 30 * time.Second // for a whole request
	maxRun  = 60 * time.Second // from a request's first byte to its answer
)

// Prediction is what is said of one image.
type Prediction struct {
	Image         string             `json:"image,omitempty"`
	Class         string             `json:"class"` // the most probable
	Probabilities map[string]float32 `json:"probabilities"`
}

// Answer is what a classifier with these classes said of an image.
func Answer(p trained.Prediction, classes []string) Prediction {
	out := Prediction{Image: p.Image, Class: classes[p.Ranked()[0]], Probabilities: map[string]float32{}}
	for i, c := range classes {
		out.Probabilities[c] = p.Probabilities[i]
	}
	return out
}

// Object is a classifier's metadata as a JSON object: what is JSON in it stays JSON.
func Object(facts []trained.Fact) map[string]any {
	out := map[string]any{}
	for _, f := range facts {
		if out[f.Key] = f.Value; json.Valid([]byte(f.Value)) {
			out[f.Key] = json.RawMessage(f.Value)
		}
	}
	return out
}

// Handler answers GET / with the metadata of a file, and POST / of an image file with a Prediction. As many images as
// the machine has cores are worked on at a time; who waits too long for a turn gets 503.
func Handler(f *trained.File) http.Handler {
	mux, turns := http.NewServeMux(), make(chan struct{}, runtime.GOMAXPROCS(0))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		facts, _ := f.About()
		write(w, http.StatusOK, Object(facts))
	})
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		fail := func(status int, err error) { write(w, status, map[string]string{"error": err.Error()}) }
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-r.Context().Done():
			return
		case <-time.After(maxWait):
			w.Header().Set("Retry-After", "1")
			fail(http.StatusServiceUnavailable, errors.New("too many requests at a time"))
			return
		}
		img, err := preprocess.Decode(http.MaxBytesReader(w, r.Body, maxBody))
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			fail(http.StatusRequestEntityTooLarge, fmt.Errorf("an image may have %d MiB", maxBody>>20))
			return
		}
		if err != nil {
			fail(http.StatusUnprocessableEntity, err)
			return
		}
		p, err := f.Classify(r.Context(), img)
		if err != nil {
			fail(http.StatusInternalServerError, err)
			return
		}
		write(w, http.StatusOK, Answer(trained.Prediction{Probabilities: p}, f.Classes()))
	})
	return mux
}

func write(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(what)
}

// Listen serves Handler at HOST:PORT until the context ends, of this machine only where HOST is empty.
func Listen(ctx context.Context, address string, f *trained.File) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host == "" {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen %s: %w; give HOST:PORT of this machine with a free port", address, err)
	}
	fmt.Printf("curl --data-binary @IMAGE http://%s/ (until Ctrl-C)\n", l.Addr())
	server := &http.Server{Handler: Handler(f), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: maxRead,
		WriteTimeout: maxRun, IdleTimeout: maxRun, MaxHeaderBytes: 16 << 10}
	return Until(ctx, server, l)
}

// Until lets a server answer on l until the context ends, which its requests see too.
func Until(ctx context.Context, server *http.Server, l net.Listener) error {
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
