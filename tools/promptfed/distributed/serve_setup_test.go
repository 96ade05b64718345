package distributed

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"promptfed/configs"
	"promptfed/federation/experiment"
	netclient "promptfed/federation/net/client"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
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
		filetest.Write(t, path, text)
		if _, err := readClasses(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	filetest.Write(t, path, " red fox \r\ncat")
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

// serve says what a round of its settings endures: TestSurvives and TestTolerates have the numbers.
func TestEndures(t *testing.T) {
	for _, c := range []struct {
		set           string // changes of a configuration of ten clients
		flags         serveFlags
		silent, lying string
	}{
		{"", serveFlags{}, "of the 10 clients of a round, 2 may be silent at its deadline, and 9 after 3 missed",
			"the mean withstands no lying client"},
		{"participation=0.5", serveFlags{keepQuorum: true}, "of the 5 clients of a round, 1 may be silent at its " +
			"deadline, and 1 after", "the mean withstands no lying client"},
		{"", serveFlags{deadline: -1}, "none of the 10", "the mean"},
		{"with=[robust]", serveFlags{}, "and 9 after", "of the 10 clients of a round, 4 may lie: median of robust"},
		{"with=[dp] options.delta=0.01", serveFlags{}, "and 9 after", "dp clips the update of each"},
		{"with=[dp] options.delta=0.01 options.where=client", serveFlags{}, "deadline, and 4 after", "dp clips"},
		{"secure_aggregation.threshold=0.7 secure_aggregation.clip=3", serveFlags{quorum: 0.5},
			"3 may be silent at its deadline, and 3 after", "by up to 3 (secure_aggregation.clip)"},
	} {
		conf, err := configs.Open(filepath.Join("..", "..", "..", "configs", "methods", "promptfl.yaml"),
			append(strings.Fields(c.set), "partition.clients=10"))
		goldentest.NoError(t, err)
		p, err := experiment.OpenServer(conf.Config, false)
		goldentest.NoError(t, err)
		f := c.flags
		f.clients, f.quorum, f.deadline = 10, cmp.Or(f.quorum, 0.8), max(0, cmp.Or(f.deadline, time.Minute))
		set, err := f.settings(t.TempDir(), p, slog.New(slog.DiscardHandler))
		goldentest.NoError(t, err)
		set.Dir = t.TempDir()
		secret := f.serverNoise(t.TempDir(), set, p)
		first, err := secret()
		if second, _ := secret(); err != nil || (first != nil) != p.Private() || first != second {
			t.Errorf("%s: the key of the noise is opened twice: %v", c.set, err)
		}
		silent, lying := endures(set, p)
		if !strings.Contains(silent, c.silent) || !strings.Contains(lying, c.lying) {
			t.Errorf("%s %+v:\n%s\n%s", c.set, c.flags, silent, lying)
		}
	}
}

// A client may have the server's own file, in whatever form the file has its options: it changes no option.
func TestJoinWithTheServersFile(t *testing.T) {
	paths, _ := filepath.Glob(filepath.Join("..", "..", "..", "configs", "methods", "*.yaml"))
	for _, path := range append(paths, filetest.Write(t, filepath.Join(t.TempDir(), "nested.yaml"),
		"method: promptfl\nwith: [dp]\noptions: {promptfl: {tokens: 2}, dp: {noise: 2, delta: 0.01}}")) {
		conf, err := configs.Open(path, nil)
		goldentest.NoError(t, err)
		p, err := experiment.OpenServer(conf.Config, false)
		if err != nil {
			continue // it runs in one process alone
		}
		want := fmt.Sprint(p.Config.Options)
		text, err := configs.YAML(p.Config.Invitation())
		goldentest.NoError(t, err)
		f := joinFlags{config: path, state: t.TempDir()}
		conf.Config, err = f.configuration(&netclient.Invitation{Config: text, Clients: 8})
		goldentest.NoError(t, err)
		p, err = experiment.OpenServer(conf.Config, false)
		if err != nil || fmt.Sprint(p.Config.Options) != want {
			t.Errorf("%s: not %s: %v", path, want, err)
		}
	}
}
