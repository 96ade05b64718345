package program

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"promptfed/federation/engine/record"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/results"
	"promptfed/tools/promptfed/runfolder"
)

// Accuracies of the made runs: base, and 0.025 for the mean of six clients; nothing is subtracted in the last round.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	madeRun(t, at("a"), 1, .5)
	madeRun(t, at("b"), 2, .6)
	filetest.Write(t, filepath.Join(at("b"), runfolder.ConfigFile),
		"name: made\nmethod: coop\nseed: 2\ntrain: {rounds: 9, lr: 0.1}\n")
	goldentest.NoError(t, os.Remove(filepath.Join(at("b"), "summary.json")))
	rounds := strings.ReplaceAll(string(read(t, at("b"), record.RoundsFile)), `"view":"personal"`, `"view":"global"`)
	filetest.Write(t, filepath.Join(at("b"), record.RoundsFile), rounds)
	want := func(parts []string, args ...string) {
		t.Helper()
		text := strings.Join(strings.Fields(mustRun(t, append([]string{"runs"}, args...)...)), " ")
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("runs %s has no %q:\n%s", args, p, text)
			}
		}
	}
	want([]string{"promptfl done 1 3 52.50", "coop unfinished 2 3 of 9 62.50 global"}, "list", dir)
	want([]string{"f1 (%) 50.00 personal 50.00 global"}, "compare", at("a"), at("b"), "--metric", "f1")
	want([]string{"method promptfl coop", "train.lr – 0.1"}, "diff", at("a"), at("b"))
	want([]string{"do not differ"}, "diff", at("a"), at("a"))
	want([]string{": best, new"}, "tag", at("a"), "--add", "new,best,old", "--remove", "old")
	want([]string{"done best,new 1"}, "list", dir, "--tag", "best", "--tag", "new")
	want([]string{"no runs"}, "list", dir, "--status", "failed")
	want([]string{"nothing was removed", "would remove"}, "rm", at("a"))
	if _, err := os.Stat(at("a")); err != nil {
		t.Fatal("a run was removed without --yes")
	}
	want([]string{"removed"}, "rm", at("a"), "--yes")
	if all, err := results.Load(dir); err != nil || len(all.Groups) != 1 || all.Groups[0].Runs[0].Seed != 2 {
		t.Errorf("after rm: %+v, %v", all, err)
	}
	for say, args := range map[string][]string{
		"not a tag":                   {"tag", at("b"), "--add", "a b"},
		"--add or --remove":           {"tag", at("b")},
		"expected one of [done ":      {"list", dir, "--status", "gone"},
		"unknown metric":              {"list", dir, "--metric", "x"},
		"no runs in":                  {"rm", t.TempDir(), "--yes"},
		"at least 2":                  {"diff", at("b")},
		"compare, diff, export, list": {"remove", at("b")},
	} {
		if _, errText, code := call(append([]string{"runs"}, args...)...); code != usage || !strings.Contains(errText,
			say) {
			t.Errorf("runs %s: exit %d, %q; want %q", args, code, errText, say)
		}
	}
}

// The page of a folder without runs waits for runs. It shows a run that begins, and Ctrl-C ends the server.
func TestUI(t *testing.T) {
	dir := t.TempDir()
	c := exec.Command(programs.Promptfed, "ui", dir, "--port", "0")
	out, err := c.StdoutPipe()
	goldentest.NoError(t, err)
	goldentest.NoError(t, c.Start())
	t.Cleanup(func() { c.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	address, _, ok := strings.Cut(line, " ")
	if err != nil || !ok || !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Fatalf("it says %q, %v", line, err)
	}
	ctx := busytest.Context(t)
	ask := func(path string) io.ReadCloser {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
		goldentest.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", path, resp, err)
		}
		return resp.Body
	}
	page := func(path string) string {
		t.Helper()
		body := ask(path)
		defer body.Close()
		text, err := io.ReadAll(body)
		goldentest.NoError(t, err)
		return string(text)
	}
	first := page("/")
	if !strings.Contains(first, "There are no runs yet") {
		t.Fatal("a folder without runs shows something else")
	}
	_, version, _ := strings.Cut(first, `"version":"`)
	version, _, _ = strings.Cut(version, `"`)
	events := ask("/events?since=" + version)
	defer events.Close()
	madeRun(t, filepath.Join(dir, "a"), 1, .5)
	told := bufio.NewScanner(events)
	for told.Scan() && told.Text() != "event: page" {
	}
	if told.Text() != "event: page" {
		t.Fatalf("nothing was told of a run that began: %v", told.Err())
	}
	if text := page("/"); !strings.Contains(text, `"folder":"a"`) || !strings.Contains(text, `"state":"done"`) {
		t.Error("the page does not show the run")
	}
	filetest.Write(t, filepath.Join(dir, "a", "provenance.json"), `{"calls":[{"command":["promptfed","run","x.yaml"],`+
		`"host":"node7","version":"v1","start":"2026-01-02T03:04:05Z","seconds":61}],`+
		`"data":{"set":"pacs","digest":"ab"}}`)
	if text := page("/details?run=a"); !strings.Contains(text, `"round 3: loss 1.0000, accuracy 52.50 % (personal)`) ||
		!strings.Contains(text, `{"Name":"took","Value":"1m1s"}`) || !strings.Contains(text, "promptfed run x.yaml") ||
		!strings.Contains(text, "pacs, digest ab") {
		t.Errorf("details: %s", text)
	}
	var port int
	if _, err := fmt.Sscanf(address, "http://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	if _, errText, code := call("ui", dir, "--port", fmt.Sprint(port)); code != failed || !strings.Contains(errText,
		"choose another with --port") {
		t.Errorf("a taken port: exit %d, %q", code, errText)
	}
	goldentest.NoError(t, c.Process.Signal(syscall.SIGINT))
	if err := c.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}
