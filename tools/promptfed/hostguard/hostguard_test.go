package hostguard

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// ask returns the status of a request, and fails unless a refusal is one line and does not reach the next handler.
func ask(t *testing.T, guard func(http.Handler) http.Handler, method, host string, headers ...string) int {
	t.Helper()
	reached := false
	h := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	r := httptest.NewRequest(method, "/", nil)
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if body := w.Body.String(); reached != (w.Code == 200) || !reached && strings.Count(body, "\n") != 1 {
		t.Errorf("%s as %q: %d %q, reached %v", method, host, w.Code, body, reached)
	}
	return w.Code
}

// A server answers only requests whose host names its address.
func TestHosts(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	at := func(listen, address string) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler {
			return Listening(listen, &net.TCPAddr{IP: net.ParseIP(address), Port: 80}, h)
		}
	}
	always := []string{"localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:80", "127.8.8.8", "[::1]", "[::1]:80",
		"[::ffff:127.0.0.1]:80"}
	never := []string{"", "*", "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example",
		"localhost.", "127.1", "2130706433", "127.0.0.1:80:80", "evil.example:80@localhost"}
	addresses := []string{"192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "0.0.0.0"}
	for _, c := range []struct {
		name    string
		guard   func(http.Handler) http.Handler
		yes, no []string
	}{
		{"loopback", Loopback, nil, append(addresses, machine)},
		{":80 on loopback", at(":80", "127.0.0.1"), nil, append(addresses, machine)},
		{"a name on loopback", at("mine:80", "127.0.0.1"), []string{"mine", "Mine:80"}, addresses},
		{"everywhere", at(":80", "::"), append(addresses, machine), []string{"mine"}},
		{"an address", at("192.0.2.1:80", "192.0.2.1"), append(addresses, machine), []string{"mine"}},
		{"a name", at("mine:80", "192.0.2.1"), append(addresses, "mine", "mine:80"), []string{"yours"}},
	} {
		for _, host := range append(c.yes, always...) {
			if got := ask(t, c.guard, http.MethodGet, host); got != 200 {
				t.Errorf("%s as %q: %d", c.name, host, got)
			}
		}
		for _, host := range append(c.no, never...) {
			if got := ask(t, c.guard, http.MethodGet, host); got != 403 {
				t.Errorf("%s as %q: %d", c.name, host, got)
			}
		}
	}
}

// A request of a page of another origin is refused, unless it only reads. Programs send no Origin.
func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		method  string
		headers []string
		want    int
	}{
		{"POST", nil, 200},
		{"POST", []string{"Content-Type", "application/x-www-form-urlencoded"}, 200}, // curl --data-binary
		{"POST", []string{"Origin", "http://127.0.0.1:80"}, 200},
		{"POST", []string{"Origin", "http://evil.example"}, 403},
		{"POST", []string{"Origin", "http://127.0.0.1:81"}, 403},
		{"POST", []string{"Origin", "null"}, 403}, // a sandboxed frame, or a file
		{"POST", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:80"}, 403},
		{"POST", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"PUT", []string{"Origin", "http://evil.example"}, 403},
		{"GET", []string{"Origin", "http://evil.example"}, 200}, // the browser does not show the answer to that page
	} {
		if got := ask(t, Loopback, c.method, "127.0.0.1:80", c.headers...); got != c.want {
			t.Errorf("%s %v: %d, want %d", c.method, c.headers, got, c.want)
		}
	}
}
