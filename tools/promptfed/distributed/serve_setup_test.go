package distributed

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/tools/promptfed/cli"
)

func TestBound(t *testing.T) {
	for text, want := range map[string]float64{"auto": 0, "off": -1, "0": -1, "12.5": 12.5, "1e15": 1e15} {
		if got, err := bound("max-norm", text); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "NaN", "inf", "1e30", "many"} {
		if got, err := bound("max-norm", text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// The classes of a server are those of its file, each once. A file without classes is an error.
func TestReadClasses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "classes.txt")
	for text, want := range map[string]string{"cat\n\ndog\ncat\n": `line 4: class "cat" is listed twice`,
		"\n \n": "has no class names", "": "has no class names"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readClasses(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if err := os.WriteFile(path, []byte(" red fox \r\ncat"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := readClasses(path); err != nil || !slices.Equal(got, []string{"red fox", "cat"}) {
		t.Errorf("%q %v", got, err)
	}
}

// Without certificates a server listens on loopback addresses only, unless it is insecure on purpose.
func TestAddress(t *testing.T) {
	for _, c := range []struct {
		listen, tls string
		insecure    bool
		want        string // empty for an error
	}{
		{"", "", false, net.JoinHostPort("127.0.0.1", "8443")},
		{"", "certs", false, ":8443"},
		{"", "", true, ":8443"},
		{"localhost:0", "", false, "localhost:0"},
		{"127.8.9.10:1", "", false, "127.8.9.10:1"},
		{"[::1]:1", "", false, "[::1]:1"},
		{"[::ffff:127.0.0.1]:1", "", false, "[::ffff:127.0.0.1]:1"},
		{"0.0.0.0:1", "certs", false, "0.0.0.0:1"},
		{"site.example:1", "", true, "site.example:1"},
		{":1", "", false, ""},
		{"0.0.0.0:1", "", false, ""},
		{"[::]:1", "", false, ""},
		{"192.0.2.1:1", "", false, ""},
		{"localhost.example:1", "", false, ""},
		{"127.0.0.1", "certs", false, ""},
		{"127.0.0.1:", "certs", false, ""},
		{"127.0.0.1:-1", "certs", false, ""},
		{"192.0.2.1:65536", "certs", true, ""},
	} {
		f := serveFlags{listen: c.listen, link: cli.Access{TLS: c.tls}, insecure: c.insecure}
		if got, err := f.address(); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("--listen %q, --tls %q, --insecure %v: %q, %v", c.listen, c.tls, c.insecure, got, err)
		}
	}
}
