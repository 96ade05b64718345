package program

import (
	"bytes"
	"fmt"
	"image"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	netclient "promptfed/federation/net/client"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
	"promptfed/tools/e2e/proctest"
)

// process is a running promptfed with its output.
type process struct {
	*proctest.Child
	log proctest.Output
}

func (p *process) said() string { return p.log.String() }

// says waits until a process prints something.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	ended := false
	busytest.Until(t, fmt.Sprintf("%q", text), func() bool {
		if strings.Contains(p.said(), text) {
			return true
		}
		if ended { // it printed nothing more
			t.Fatalf("it ended and never said %q", text)
		}
		ended = p.Ended()
		return false
	})
}

// killed kills a process with kill -9 and reports whether it ran until then.
func (p *process) killed() bool {
	p.Kill()
	return p.Ending != nil && p.Ending.Error() == "signal: killed"
}

// missing reports whether a client runs that does not have the result of its run. The server waits a minute at most for
// clients that fetch it, and must be started again for a client that comes later.
func missing(p *process, state string) bool { return !p.Ended() && netclient.FinishedRun(state) == "" }

// ended reports whether all clients have ended. It starts a server again that a client still needs.
func ended(t *testing.T, server **process, serve func(...string) *process, clients []*process, dirs []string) bool {
	t.Helper()
	over := true
	for k, p := range clients {
		if (*server).Ended() && missing(p, dirs[k+1]) {
			(*server).ends(t)
			*server = serve("--resume")
		}
		over = over && p.Ended()
		if p.Ended() {
			p.ends(t)
		}
	}
	return over
}

// committed counts the rounds of a run folder.
func committed(dir string) int {
	b, _ := os.ReadFile(filepath.Join(dir, record.RoundsFile))
	return bytes.Count(b, []byte("\n"))
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startIn(t, nil, args...)
}

// startIn is start with additional variables of the environment.
func startIn(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startAt(t, "", env, args...)
}

// startAt is startIn in a folder; empty for that of the test.
func startAt(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	p, c := &process{}, exec.CommandContext(busytest.Context(t), programs.Promptfed, args...)
	c.Stdout, c.Stderr, c.Dir, c.Env = &p.log, &p.log, dir, append(os.Environ(), env...)
	p.Child = proctest.Start(t, c)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("promptfed %s:\n%s", strings.Join(args, " "), p.said())
		}
	})
	return p
}

func (p *process) ends(t *testing.T) {
	t.Helper()
	<-p.Done
	if p.Ending != nil {
		t.Errorf("%s: %v", strings.Join(p.Args[1:], " "), p.Ending)
	}
}

// together returns what a server and its clients learned, as one run folder would have it.
func together(t *testing.T, dirs ...string) []byte {
	t.Helper()
	all := orttest.Golden(t, filepath.Join(dirs[0], "prompts.safetensors"))
	for _, d := range dirs[1:] {
		m := orttest.Golden(t, filepath.Join(d, "prompts.safetensors"))
		maps.Copy(all, m)
	}
	b, err := message.EncodeTensors(all)
	goldentest.NoError(t, err)
	return b
}

// A server and four clients as separate processes, over TLS, learn what one process learns. The server and a client are
// killed with kill -9 and continue. The folder of each client then classifies.
func TestServeAndJoin(t *testing.T) { serveAndJoin(t, "") }

// The same holds under secure aggregation, and each client prints a summary of it.
func TestServeAndJoinSecure(t *testing.T) { serveAndJoin(t, "secure_aggregation: {threshold: 0.6}\n") }

func serveAndJoin(t *testing.T, more string) {
	t.Parallel()
	dir := setup(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	conf, addr := at("small.yaml"), busytest.Address(t, "127.0.0.1")
	filetest.Write(t, conf, append(read(t, dir, "small.yaml"), more...))
	mustRun(t, "run", conf, "--out", at("run"))
	mustRun(t, "certs", at("certs"), "--clients", "4")
	serve := func(more ...string) *process {
		return start(t, append([]string{"serve", conf, "--out", at("serve"), "--listen", addr, "--tls", at("certs"),
			"--quorum", "1"}, more...)...)
	}
	join := func(k int) *process {
		return start(t, "join", "https://"+addr, "--client", fmt.Sprint(k), "--tls", at("certs"), "--config", conf,
			"--partition", "--state", at(fmt.Sprint("client", k)))
	}
	server := serve()
	mustRun(t, "certs", at("stolen"), "--clients", "3")
	// the certificate of client 1 for client 2
	for _, file := range []string{"ca.pem", "client-1.pem", "client-1-key.pem"} {
		b := read(t, at("certs"), file)
		if err := os.WriteFile(filepath.Join(at("stolen"), strings.ReplaceAll(file, "client-1", "client-2")), b,
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, text, code := call("join", "https://"+addr, "--client", "2", "--tls", at("stolen"), "--config", conf,
		"--partition", "--state", at("thief")); code != failed || !strings.Contains(text,
		`client-2.pem is the certificate of "client-1", not of client-2`) {
		t.Errorf("client 1 as client 2: exit %d, %s", code, text)
	}
	clients, dirs := make([]*process, 4), []string{at("serve")}
	for k := range clients {
		clients[k] = join(k)
		dirs = append(dirs, at(fmt.Sprint("client", k)))
	}
	busytest.Until(t, "two rounds", func() bool { return server.Ended() || committed(at("serve")) >= 2 })
	server.Process.Kill()
	<-server.Done
	clients[1].Process.Kill()
	<-clients[1].Done
	server = serve("--resume")
	clients[1] = join(1)
	busytest.Until(t, "the end of the clients", func() bool {
		return ended(t, &server, serve, clients, dirs) || t.Failed()
	})
	if !t.Failed() {
		server.ends(t)
	}
	if t.Failed() {
		return
	}
	if !bytes.Equal(together(t, dirs...), together(t, at("run"))) {
		t.Error("server and clients learned something else than one process")
	}
	for k := range 4 { // no file of the server contains what sums hide
		b := read(t, at("serve"), fmt.Sprintf("hub/members/client-%d.json", k))
		if told := bytes.Contains(b, []byte(`"examples"`)); told == (more != "") {
			t.Errorf("the server's folder holds the number of examples of client %d: %v", k, told)
		}
		if summed := strings.Contains(clients[k].said(), "refused 0 instructions"); summed != (more != "") {
			t.Errorf("client %d tells of sums: %v", k, summed)
		}
	}
	if text := mustRun(t, "join", "https://"+addr, "--client", "2", "--tls", at("certs"), "--state",
		at("client2")); !strings.Contains(text, "the run is over") {
		t.Errorf("a client whose run is over says %q", text)
	}
	another := start(t, "serve", conf, "--out", at("another"), "--listen", addr, "--tls", at("certs"))
	another.says(t, "waiting for clients")
	for _, words := range []string{"msg=joined", "another promptfed join works in"} { // two processes, one folder
		start(t, "join", "https://"+addr, "--client", "3", "--tls", at("certs"), "--config", conf, "--partition",
			"--state", at("both")).says(t, words)
	}
	busytest.Until(t, "an answer of the other server", func() bool { // a client waits three seconds for one
		_, text, code := call("join", "https://"+addr, "--client", "2", "--tls", at("certs"), "--state", at("client2"))
		if code != done && code != failed || code == failed && (!strings.Contains(text, "which is over") ||
			!strings.Contains(text, "use another --state")) {
			t.Errorf("the folder of a run that is over, and a server with another run: exit %d, %q", code, text)
		}
		return code != done
	})
	another.Process.Kill()
	image := at("image.png")
	drawImage(t, image)
	want := mustRun(t, "predict", at("run"), "--client", "2", "--json", image)
	if got := mustRun(t, "predict", at("client2"), "--client", "2", "--json", image); got != want {
		t.Errorf("client 2 alone classifies\n%sand in one process\n%s", got, want)
	}
}

func drawImage(t *testing.T, path string, seed ...int) {
	t.Helper()
	picture := image.NewGray(image.Rect(0, 0, 32, 32))
	for i := range picture.Pix {
		picture.Pix[i] = byte(7 * i)
		for _, n := range seed {
			picture.Pix[i] ^= byte(i * n)
		}
	}
	filetest.PNG(t, path, picture)
}

// A client that would train something else is refused, with the reason on both sides. A client without a certificate is
// refused too.
func TestJoinIsRefused(t *testing.T) {
	dir := setup(t)
	conf, addr := filepath.Join(dir, "small.yaml"), busytest.Address(t, "127.0.0.1")
	metrics := busytest.Address(t, "127.0.0.1")
	secret := filepath.Join(dir, "token")
	goldentest.NoError(t, os.WriteFile(secret, []byte("secret\n"), 0o600))
	classes := filetest.Write(t, filepath.Join(dir, "classes.txt"), "circle\nsquare\nstar\nhouse\n")
	server := start(t, "serve", conf, "--out", filepath.Join(dir, "serve"), "--listen", addr, "--token-file", secret,
		"--metrics", metrics, "--log", "json", "--classes", classes)
	join := func(state string, more ...string) (string, int) {
		_, text, code := call(append([]string{"join", "https://" + addr, "--config", conf, "--partition", "--state",
			filepath.Join(dir, state)}, more...)...)
		return text, code
	}
	first := start(t, "join", "https://"+addr, "--config", conf, "--partition", "--state", filepath.Join(dir, "0"),
		"--client", "0", "--token-file", secret)
	first.says(t, "joined")
	for _, c := range []struct {
		say  string
		args []string
	}{
		{"options: the server has", []string{"--client", "1", "--token", "secret", "--set", "options.global_tokens=5"}},
		{"classes: the server has", []string{"--client", "1", "--token", "secret", "--set",
			"data.generator.classes=[circle, square, star, heart]"}},
		{"--require secure_aggregation does not hold: the server's configuration has secure_aggregation: off",
			[]string{"--client", "1", "--token", "secret", "--require", "rounds>=1,secure_aggregation,method=x"}},
		{"the run has clients 0 to 3", []string{"--client", "4", "--token", "secret"}},
		{"the token is wrong", []string{"--client", "1", "--token", "guessed"}},
	} {
		text, code := join("1"+c.say[:3], c.args...)
		if code != failed || !strings.Contains(text, c.say) {
			t.Errorf("%v: exit %d, %s", c.args, code, text)
		}
	}
	check := func(more ...string) (out, log string, code int) {
		return call(append([]string{"join", "https://" + addr, "--check", "--client", "1", "--token", "secret",
			"--config", conf, "--partition", "--state", filepath.Join(dir, "checked")}, more...)...)
	}
	out, log, code := check("--require", "rounds>=1")
	for _, say := range []string{"agrees: method\n", "agrees: classes\n", "agrees: --require\n",
		"│ data here", "the server names bundle;", "open: backbone: this site has bundle", "join would be accepted"} {
		if code != done || !strings.Contains(out, say) || strings.Contains(out, "differs") {
			t.Errorf("--check of the server's configuration: exit %d, no %q in\n%s%s", code, say, out, log)
		}
	}
	out, log, code = check("--require", "rounds<1,dp", "--set", "options.global_tokens=5", "--set", "train.lr=7",
		"--set", "data.generator.classes=[circle, square, star, heart]")
	for _, say := range []string{"agrees: seed\n", "differs: --require rounds<1 does not hold",
		"differs: --require dp does not hold", "differs: options: the server has", "differs: training: the server has",
		`differs: classes: the server has ["house"], which this site lacks; this site has ["heart"], which the `,
		"options.global_tokens: the server has 4, this site 5; remove the key here, or use --set 'options.global_to",
		"differs: train.lr: the server has 0.01, this site 7;"} {
		if code != failed || !strings.Contains(out, say) || strings.Contains(out, "accepted") {
			t.Errorf("--check of other settings: exit %d, no %q in\n%s%s", code, say, out, log)
		}
	}
	out, _, code = check("--set", "backbones=[nowhere]", "--set", "seed=7")
	if code != failed || !strings.Contains(out, `differs: backbones: `) ||
		!strings.Contains(out, "differs: seed: the") {
		t.Errorf("--check of a backbone that is not here: exit %d, %s", code, out)
	}
	for _, name := range []string{"client.json", "agreed.json", "config.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, "checked", name)); err == nil {
			t.Errorf("--check wrote %s", name)
		}
	}
	if text, code := join("unknown", "--client", "1", "--require", "colour"); code != usage || !strings.Contains(text,
		"--require colour: unknown key") {
		t.Errorf("exit %d, %s", code, text)
	}
	goldentest.Contains(t, server.said(), "refused to join", "options: the server has", "the token is wrong")
	if _, text, code := call("status", "https://"+addr, "--token", "secret", "--token-file", secret); code != usage ||
		!strings.Contains(text, "give only one of them") {
		t.Errorf("exit %d, %s", code, text)
	}
	t.Setenv("PROMPTFED_TOKEN", "secret")
	text := mustRun(t, "status", "https://"+addr)
	if !strings.Contains(text, "not joined") || !strings.Contains(text, "waits") {
		t.Errorf("status:\n%s", text)
	}
	for path, say := range map[string]string{"metrics": `promptfed_client_joined{client="0"} 1`,
		"healthz": `"ok":true`} {
		r, err := http.Get("http://" + metrics + "/" + path)
		goldentest.NoError(t, err)
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(b), say) {
			t.Errorf("%s: %v, %s\n%s", path, err, r.Status, b)
		}
		foreign, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metrics+"/"+path, nil)
		goldentest.NoError(t, err)
		foreign.Host = "evil.example" // a name that resolves to this machine
		r, err = http.DefaultClient.Do(foreign)
		goldentest.NoError(t, err)
		if r.Body.Close(); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s for another host: %s", path, r.Status)
		}
	}
	if !strings.Contains(server.said(), `"level":"INFO","msg":"joined","client":0`) {
		t.Error("the log is not JSON")
	}
}

// Each client has its own folder of images, one of them without a class of the other. The server reads the list of
// classes from a file and never sees the images. A server that is stopped prints how to continue.
func TestOwnFolders(t *testing.T) {
	dir := setup(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	n := 0
	for client, classes := range [][]string{{"cat", "dog", "fox"}, {"dog", "fox"}} {
		for _, class := range classes {
			for i := range 10 {
				n++
				drawImage(t, at(fmt.Sprintf("site%d/%s/%d.png", client, class, i)), n)
			}
		}
	}
	text := strings.ReplaceAll(small, "clients: 4", "clients: 2")
	text = strings.ReplaceAll(text, "BUNDLE", at("bundle")) + "runtime: {cache: " + at("cache") + "}\n"
	for name, text := range map[string]string{"own.yaml": text, "classes.txt": "cat\ndog\nfox\n"} {
		filetest.Write(t, at(name), text)
	}
	addr := busytest.Address(t, "127.0.0.1")
	serve := func(more ...string) *process {
		return start(t, append([]string{"serve", at("own.yaml"), "--out", at("serve"), "--listen", addr, "--classes",
			at("classes.txt"), "--quorum", "1"}, more...)...)
	}
	server := serve()
	server.says(t, "waiting for clients")
	server.Process.Signal(os.Interrupt)
	<-server.Done
	if !strings.Contains(server.said(), "stopped; to continue: ") || !strings.Contains(server.said(), " --resume\n") {
		t.Error("the server does not say how to go on")
	}
	server = serve("--resume")
	var clients []*process
	for k := range 2 {
		clients = append(clients, start(t, "join", "https://"+addr, "--client", fmt.Sprint(k), "--set",
			"data.set=folder", "--set", "data.root="+at(fmt.Sprint("site", k)),
			"--set", "data.split=pooled", "--set", "backbones=["+at("bundle")+"]", "--set", "runtime.cache="+
				at("cache"), "--domain", fmt.Sprint("site", k), "--state", at(fmt.Sprint("client", k))))
	}
	for _, c := range append(clients, server) {
		c.ends(t)
	}
	if t.Failed() {
		return
	}
	summary := string(read(t, at("serve"), "summary.json"))
	goldentest.Contains(t, summary, `"site0"`, `"site1"`)
	out := mustRun(t, "predict", at("client1"), "--client", "1", "--json", filepath.Join(at("site1"), "fox", "0.png"))
	if !strings.Contains(out, `"cat"`) {
		t.Errorf("client 1 does not know the class that it has no images of: %s", out)
	}
	err := filepath.WalkDir(at("serve"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if b := read(t, path); bytes.Contains(b, []byte(at("site0"))) {
			t.Errorf("%s names a folder of a client", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Without --state a second run at a site gets a folder of its own, beside that of the run that is over, and a client
// that is started again continues in it, with the key of the first folder, but not with other images.
func TestSecondRunAtASite(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	conf, addr := filepath.Join(dir, "small.yaml"), busytest.Address(t, "127.0.0.1")
	text := strings.ReplaceAll(string(read(t, dir, "small.yaml")), "clients: 4", "clients: 1")
	filetest.Write(t, conf, text)
	serve := func(out string, more ...string) *process {
		return start(t, append([]string{"serve", conf, "--out", filepath.Join(dir, out), "--listen", addr}, more...)...)
	}
	join := func(more ...string) *process {
		return startAt(t, dir, nil, append([]string{"join", "https://" + addr, "--client", "0", "--config", conf,
			"--partition"}, more...)...)
	}
	server, client := serve("first"), join()
	server.ends(t)
	client.ends(t)
	server = serve("second", "--set", "train.rounds=100000")
	for range 2 {
		client = join()
		client.says(t, "msg=joined")
		busytest.Until(t, "a state", func() bool {
			states, _ := filepath.Glob(filepath.Join(dir, "runs/join-0-*/state-*"))
			return len(states) > 0
		})
		client.killed()
	}
	refused := join("--set", "data.seed=77")
	refused.says(t, "other images")
	refused.says(t, "--state")
	server.Process.Kill()
	if dirs, _ := filepath.Glob(filepath.Join(dir, "runs/join-0*/client.json")); len(dirs) != 2 {
		t.Errorf("the folders of two runs are %v: %s", dirs, client.said())
	}
	listed, _, _ := callIn(dir, "runs", "list", "runs")
	if !strings.Contains(listed, "runs/join-0 (small)") || strings.Count(listed, " (small)") != 2 {
		t.Errorf("the two folders of the client are not listed by the run's name:\n%s", listed)
	}
	if _, log, code := callIn(dir, "report", "runs/join-0"); code != usage || !strings.Contains(log,
		"no runs with rounds") {
		t.Errorf("a report on a client's folder: exit %d, %s", code, log)
	}
}
