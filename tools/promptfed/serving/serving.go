// Package serving classifies images in HTTP requests with a classifier that promptfed export wrote. It may import
// federation/experiment/inference, models and hostguard.
package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"promptfed/federation/experiment/inference"
	"promptfed/models/preprocess"
	"promptfed/tools/promptfed/hostguard"
)

// Limits of requests.
const (
	maxBody   = 32 << 20         // bytes of an image file
	maxBodies = 8 * maxBody      // of all files as far as they have arrived
	maxPixels = 24 << 20         // of one image, and of all images in work together; each takes some 100 bytes
	maxWait   = 10 * time.Second // for a part of the budget
	chunk     = 256 << 10        // bytes of a file that are taken from the budget at a time
)

// Prediction is the response about one image.
type Prediction struct {
	Image         string             `json:"image,omitempty"`
	Class         string             `json:"class"` // most probable class
	Probabilities map[string]float32 `json:"probabilities" key:"CLASS"`
}

// NewPrediction returns the response of a classifier with the given classes.
func NewPrediction(p inference.Prediction, classes []string) Prediction {
	out := Prediction{Image: p.Image, Class: classes[p.Ranked()[0]], Probabilities: map[string]float32{}}
	for i, c := range classes {
		out.Probabilities[c] = p.Probabilities[i]
	}
	return out
}

// Metadata returns the metadata of a classifier as a JSON object. Values that are JSON stay JSON.
func Metadata(facts []inference.Fact) map[string]any {
	out := map[string]any{}
	for _, f := range facts {
		if out[f.Key] = f.Value; json.Valid([]byte(f.Value)) {
			out[f.Key] = json.RawMessage(f.Value)
		}
	}
	return out
}

// Handler answers GET / with the metadata of a file, and POST / of an image file with a Prediction. All requests share
// one budget: maxBodies bytes of files, maxPixels pixels, and one image per core at a time. An image above the limits
// gets status 413. A file takes bytes of the budget as they arrive. A request whose bytes find the budget spent, or
// that waits longer than maxWait for another part of it, gets status 503.
func Handler(classifier *inference.File) http.Handler {
	mux, bodies, pixels := http.NewServeMux(), semaphore.NewWeighted(maxBodies), semaphore.NewWeighted(maxPixels)
	turns := semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		facts, _ := classifier.About()
		write(w, http.StatusOK, Metadata(facts))
	})

	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		var held parts
		defer held.release()
		err := errLong
		var img image.Image
		if r.ContentLength <= maxBody {
			file := &arriving{Reader: http.MaxBytesReader(w, r.Body, maxBody), held: &held, slots: bodies}
			img, err = preprocess.DecodeIf(file, func(n int) error {
				if n > maxPixels {
					return fmt.Errorf("%w, this one has %d: scale it down", errLarge, n)
				}
				if err := held.take(r.Context(), pixels, int64(n)); err != nil {
					return err
				}
				return held.take(r.Context(), turns, 1)
			})
		}

		if err != nil {
			fail(w, err)
			return
		}

		p, err := classifier.Classify(r.Context(), img)
		if err != nil {
			write(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
			return
		}

		write(w, http.StatusOK, NewPrediction(inference.Prediction{Probabilities: p}, classifier.Classes()))
	})

	return mux
}

// Errors of requests above the limits.
var (
	errLong  = fmt.Errorf("an image file may have %d MiB", maxBody>>20)
	errLarge = fmt.Errorf("an image may have %d pixels", maxPixels)
	errBusy  = errors.New("too many requests at a time; try again later")
)

// parts releases the parts of the budget that a request holds.
type parts []func()

// take waits for a part of the budget.
func (p *parts) take(ctx context.Context, slots *semaphore.Weighted, n int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxWait, errBusy)
	defer cancel()
	if slots.Acquire(ctx, n) != nil {
		return context.Cause(ctx)
	}
	*p = append(*p, func() { slots.Release(n) })
	return nil
}

// arriving is a file whose bytes are taken from the budget as they arrive. It does not wait for them: requests that
// hold bytes and wait for more would wait for each other.
type arriving struct {
	io.Reader
	held  *parts
	slots *semaphore.Weighted
	left  int // bytes that are taken and have not arrived
}

func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.Reader.Read(b)
	for a.left -= n; a.left < 0; a.left += chunk {
		if !a.slots.TryAcquire(chunk) {
			return 0, errBusy
		}
		*a.held = append(*a.held, func() { a.slots.Release(chunk) })
	}

	return n, err
}

func (p *parts) release() {
	for _, give := range *p {
		give()
	}
}

// fail responds with the reason why an image was not classified.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusUnprocessableEntity
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		status, err = http.StatusRequestEntityTooLarge, errLong
	case errors.Is(err, errLong), errors.Is(err, errLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, errBusy):
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}

	write(w, status, map[string]string{"error": err.Error()})
}

func write(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(what)
}

// Listen serves Handler at HOST:PORT until the context ends. Without HOST it listens on 127.0.0.1.
func Listen(ctx context.Context, address string, classifier *inference.File) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host == "" {
		address = net.JoinHostPort("127.0.0.1", port)
	}

	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen %s: %w; give HOST:PORT of this machine with a free port", address, err)
	}

	fmt.Printf("curl --data-binary @IMAGE http://%s/ (until Ctrl-C)\n", l.Addr())
	return hostguard.Serve(ctx, l, hostguard.Listening(address, l.Addr(), Handler(classifier)))
}
