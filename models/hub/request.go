package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"promptfed/runtime/version"
)

// attempts is the number of attempts at a request that fails for a cause that may pass.
const attempts = 5

// longestPause bounds the time that a server can ask to wait.
const longestPause = time.Minute

// unreachable is the error of a server that gives no answer, or that is out of order.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

func isUnreachable(err error) bool { return errors.As(err, new(unreachable)) }

// errRange is the error of an answer to a request for a part that does not exist.
var errRange = errors.New("the file has no such part")

// passing is an error that may not happen again.
type passing struct {
	error
	after time.Duration // that the server asks to wait
}

func (p passing) Unwrap() error { return p.error }

// retry calls do until it succeeds, or fails for a cause that does not pass, or fails too often. do reports whether it
// came closer to its end; then the count of failures begins again.
func (h *Hub) retry(ctx context.Context, do func() (closer bool, err error)) error {
	for failed := 1; ; failed++ {
		closer, err := do()
		var p passing
		if err == nil || ctx.Err() != nil || !errors.As(err, &p) {
			return causeOf(ctx, err)
		}
		if closer {
			failed = 1
		}
		if failed == attempts {
			return p.error
		}
		pause := max(min(p.after, longestPause), h.pause<<(failed-1))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// causeOf returns the cause of a context that has ended, or err.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// send sends one request. from is the first byte that is wanted of a file. The error of an answer without the content
// says what to do; what names the thing that is asked for.
func (h *Hub) send(ctx context.Context, method, address, what string, from int64) (*http.Response, error) {
	if h.offline {
		return nil, unreachable{fmt.Errorf("%s: HF_HUB_OFFLINE is set, so nothing is fetched: unset it, or %s", what,
			byHand)}
	}

	r, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}

	r.Header.Set("User-Agent", "promptfed/"+version.Version())
	r.Header.Set("Accept-Encoding", "identity") // sizes and ranges count the bytes of the file
	if from > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}

	answer, err := h.client.Do(r)
	if err != nil {
		var u *url.Error // with the whole address, which may have a signature
		if errors.As(err, &u) {
			err = u.Err
		}
		if errors.Is(err, errRedirect) {
			return nil, fmt.Errorf("%s: %w: check HF_ENDPOINT", what, err)
		}
		return nil, noAnswer(what, r.URL.Host, err)
	}

	if s := answer.StatusCode; s < 300 || s < 400 && method == http.MethodHead {
		return answer, nil
	}

	io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16)) // for the next request on the connection
	answer.Body.Close()
	return nil, h.refused(answer, what)
}

// noAnswer is the error of a server that cannot be reached, or does not finish its answer. Without a connection another
// attempt at once has little hope, except within a file.
func noAnswer(what, host string, err error) error {
	out := unreachable{fmt.Errorf("%s: %s is not reachable (%w): check the network, or %s", what, host, err, byHand)}
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
		return out
	}
	return passing{error: out}
}

// byHand is what to do without a network.
const byHand = "copy the model's folder here and use promptfed convert FOLDER --out BUNDLE"

// refused explains an answer that is not the content.
func (h *Hub) refused(answer *http.Response, what string) error {
	host, code := answer.Request.URL.Host, answer.Header.Get("X-Error-Code")
	switch status := answer.StatusCode; {
	case status == http.StatusRequestedRangeNotSatisfiable:
		return passing{error: errRange}
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		wait, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // no number: no wish
		err := fmt.Errorf("%s: %s answers %s: try again later", what, host, answer.Status)
		if status == http.StatusTooManyRequests {
			err = fmt.Errorf("%s: %s limits the number of requests (%s): wait some minutes, or set HF_TOKEN", what,
				host, answer.Status)
		}
		return passing{unreachable{err}, time.Duration(wait) * time.Second}
	case !h.own(answer.Request.URL):
		return fmt.Errorf("%s: %s answers %s: try again", what, host, answer.Status)
	case code == "GatedRepo" || status == http.StatusForbidden:
		return fmt.Errorf("%s: the hub gives access to some accounts only (%s): accept the terms on the model's page, "+
			"and set HF_TOKEN to a token of that account", what, answer.Status)
	case code == "RevisionNotFound":
		return fmt.Errorf("%s: the hub has no such revision (%s): give a branch, a tag or a whole commit", what,
			answer.Status)
	case code == "EntryNotFound":
		return fmt.Errorf("%s: the hub does not have this file (%s): try again", what, answer.Status)
	case status == http.StatusUnauthorized && h.token != "":
		return fmt.Errorf("%s: the hub refuses the token of HF_TOKEN, or hides the model from it (%s): check the name "+
			"and the token", what, answer.Status)
	case status == http.StatusUnauthorized || status == http.StatusNotFound:
		return fmt.Errorf("%s: the hub shows no such model (%s): check the name; a private one needs HF_TOKEN", what,
			answer.Status)
	}

	return fmt.Errorf("%s: %s answers %s, which is not expected: check HF_ENDPOINT", what, host, answer.Status)
}
