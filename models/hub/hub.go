package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Addresses of the servers.
const (
	hubAddress     = "https://huggingface.co" // HF_ENDPOINT replaces it
	archiveAddress = "https://openaipublic.azureedge.net/clip/models"
)

// Hub is a client of the Hugging Face hub, and of the server of OpenAI's archives.
type Hub struct {
	endpoint *url.URL
	archives string // address of the folder of archives
	token    string // sent to the endpoint alone
	offline  bool   // whether HF_HUB_OFFLINE forbids requests
	cache    string // huggingface_hub's cache
	clip     string // folder of OpenAI's archives
	client   http.Client
	pause    time.Duration // before the second attempt
	stall    time.Duration // time without a byte after which a connection is given up
}

// New returns a client with the settings of Python's huggingface_hub: the variables HF_ENDPOINT, HF_HOME, HF_HUB_CACHE,
// HF_TOKEN, HF_TOKEN_PATH and HF_HUB_OFFLINE.
func New() (*Hub, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("no folder for models (%w): set HOME", err)
	}

	caches := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache"))
	path := func(usual string, names ...string) string {
		for _, name := range names {
			if p := os.Getenv(name); p != "" {
				if rest, ok := strings.CutPrefix(p, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
					p = home + rest
				}
				return os.ExpandEnv(p)
			}
		}
		return usual
	}

	hf := path(filepath.Join(caches, "huggingface"), "HF_HOME")
	hub := &Hub{archives: archiveAddress, pause: time.Second, stall: time.Minute,
		offline: isTrue(os.Getenv("HF_HUB_OFFLINE")) || isTrue(os.Getenv("TRANSFORMERS_OFFLINE")),
		cache:   path(filepath.Join(hf, "hub"), "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
		clip:    filepath.Join(home, ".cache", "clip"),
		token:   strings.TrimSpace(cmp.Or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN")))}

	if hub.token == "" && !isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		text, _ := os.ReadFile(path(filepath.Join(hf, "token"), "HF_TOKEN_PATH")) // most users have none
		hub.token = strings.TrimSpace(string(text))
	}

	address := strings.TrimRight(cmp.Or(os.Getenv("HF_ENDPOINT"), hubAddress), "/")
	if hub.endpoint, err = url.Parse(address); err != nil || hub.endpoint.Host == "" ||
		hub.endpoint.Scheme != "https" && hub.endpoint.Scheme != "http" {
		return nil, fmt.Errorf("HF_ENDPOINT is no address of a hub: write it as %s", hubAddress)
	}

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = hub.stall
	hub.client = http.Client{Transport: authorized{hub, transport}, CheckRedirect: hub.redirect}
	return hub, nil
}

func isTrue(value string) bool {
	switch strings.ToUpper(value) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// own reports whether an address is on the hub itself, which may see the token.
func (h *Hub) own(u *url.URL) bool { return u.Scheme == h.endpoint.Scheme && u.Host == h.endpoint.Host }

// authorized adds the token to the requests to the hub itself, and gives up an answer that stops. The rules of
// http.Client would also pass the token to hosts below the hub's.
type authorized struct {
	hub  *Hub
	base http.RoundTripper
}

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, stop := context.WithCancelCause(r.Context())
	r = r.Clone(ctx)
	if a.hub.token != "" && a.hub.own(r.URL) {
		r.Header.Set("Authorization", "Bearer "+a.hub.token)
	}

	answer, err := a.base.RoundTrip(r)
	if err != nil {
		stop(nil)
		return nil, err
	}

	answer.Body = &body{answer.Body, ctx, stop, a.hub.stall}
	return answer, nil
}

// body is the content of an answer. A read that waits longer than stall for a byte ends the request.
type body struct {
	io.ReadCloser
	ctx   context.Context // of the request
	stop  context.CancelCauseFunc
	stall time.Duration
}

var errStalled = errors.New("no byte for a long time")

func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.stall, func() { b.stop(errStalled) })
	defer timer.Stop()
	n, err := b.ReadCloser.Read(p)
	return n, causeOf(b.ctx, err)
}

func (b *body) Close() error {
	defer b.stop(nil)
	return b.ReadCloser.Close()
}

var errRedirect = errors.New("redirects that are not followed")

// redirect follows redirects, but a question about a file (HEAD) to the hub's own addresses only: its answer has the
// checksum, the answer of another host does not.
func (h *Hub) redirect(r *http.Request, via []*http.Request) error {
	switch {
	case r.Method == http.MethodHead && !h.own(r.URL):
		return http.ErrUseLastResponse
	case len(via) >= 10:
		return fmt.Errorf("%w: more than %d", errRedirect, len(via))
	case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
		return fmt.Errorf("%w: to %s, without encryption", errRedirect, r.URL.Host)
	}

	return nil
}
