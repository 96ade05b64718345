package page_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"promptfed/tools/lab/report"
	"promptfed/tools/lab/ui"
)

// put writes a file of a run folder, and the folder.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

const firstRound = `{"format":2,"round":0,"loss":1,"tested":true,"view":"global","accuracy":0.5,"per_client":[0.5],` +
	`"evaluations":{"global":{"accuracy":0.5,"per_client":[0.5]}},"bytes_up":1,"bytes_down":1,"seconds":1}` + "\n"

// startingIdentity is the identity of an experiment, which a run writes before its first round.
const startingIdentity = `{"version":1,"seed":0,"values":{}}`

// states writes run folders in every state, and returns the words that their rows show.
func states(t *testing.T, root string) map[string]string {
	for name, files := range map[string][]string{
		"done":     {"rounds.jsonl", firstRound, "summary.json", `{"format":2,"rounds":1}`},
		"running":  {"rounds.jsonl", firstRound},
		"starting": {"experiment.json", startingIdentity}, // no file of rounds yet
		"before":   {"rounds.jsonl", ""},
		"cut":      {"rounds.jsonl", firstRound[:40]},
		"failed":   {"rounds.jsonl", "", "error.txt", "the disk is full"},
		"damaged":  {"rounds.jsonl", "\x00{not json\n", "summary.json", `{"format":2,"rounds":3}`},
		"unread":   {"rounds.jsonl", firstRound, "summary.json", "[]"},
		"clients":  {"rounds.jsonl", "", "clients.json", "null", "terms.json", "{}"},
	} {
		dir := filepath.Join(root, name)
		put(t, dir, "config.yaml", "name: "+name+"\nmethod: promptfl\ntrain: {rounds: 4}\n")
		for i := 0; i < len(files); i += 2 {
			put(t, dir, files[i], files[i+1])
		}
	}
	put(t, filepath.Join(root, "garbage"), "config.yaml", "garbage")
	put(t, filepath.Join(root, "garbage"), "rounds.jsonl", "")
	put(t, filepath.Join(root, "grid"), "sweep.json", `{"name":"grid","axes":[{"name":"lr",`+
		`"labels":["early","late"]}],"seeds":[1],"cells":[{"folder":"early/seed-1","labels":{"lr":"early"},"seed":1},`+
		`{"folder":"late/seed-1","labels":{"lr":"late"},"seed":1}]}`)
	put(t, filepath.Join(root, "grid", "early", "seed-1"), "error.txt", "the disk is full") // before its first round
	put(t, filepath.Join(root, "empty", "folder"), "notes.txt", "")
	put(t, filepath.Join(root, "join-0"), "config.yaml", "name: join-0\n") // of a client of promptfed serve
	return map[string]string{"done": "done", "running": "1 of 4", "starting": "0 of 4", "before": "0 of 4",
		"cut": "0 of 4", "failed": "failed", "damaged": "failed", "unread": "failed", "clients": "0 of 4",
		"garbage": "unfinished", "grid, early": "failed", "grid, late": "missing"}
}

// complete checks that the page shows a row for every run, that no part of it failed, and that every section has
// content.
func (b *tab) complete(rows map[string]string) {
	b.Helper()
	b.until(`document.documentElement.dataset.ready === "true"`)
	if !js[bool](b, `document.getElementById("problem").hidden`) {
		b.Error(b.text("#problem"))
	}
	for name, shows := range rows {
		text := js[string](b, fmt.Sprintf(`[...document.querySelectorAll("#runs-table tbody tr")].map(`+
			`(r) => r.innerText).find((t) => t.split("\t")[0].trim() === %q) || ""`, name))
		if !strings.Contains(text, shows) {
			b.Errorf("the row of %s is %q, without %q", name, text, shows)
		}
		b.run(fmt.Sprintf(`{ const s = document.getElementById("run-run"); s.value = [...s.options].find((o) => `+
			`o.text === %q).value; s.dispatchEvent(new Event("change")) }`, name))
		b.until(fmt.Sprintf(`document.getElementById("run-facts").innerText.includes(%q)`, shows))
	}
	for _, part := range []string{"#runs-table", "#curves-tool", "#run-facts", "#configuration-box"} {
		if js[string](b, fmt.Sprintf(`document.querySelector(%q).innerText.trim()`, part)) == "" {
			b.Errorf("%s is empty", part)
		}
	}
}

// TestPageOfEveryState shows runs that are starting, cut short, failed or damaged, in a report and in ui.
func TestPageOfEveryState(t *testing.T) {
	root := t.TempDir()
	rows := states(t, root)
	r, err := report.New(t.Context(), []string{root}, root, report.Options{Formats: []string{"html"}})
	if err == nil {
		_, err = r.Write(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	b.load(filepath.Join(root, "report.html"))
	b.complete(rows)
	b.quiet()
	for _, b := range []*tab{b, live(t, root, rows)} { // a row for each run, and no others
		if got, want := b.text("#runs-status"), fmt.Sprintf("%d of %[1]d runs", len(rows)); got != want {
			t.Errorf("the table has %s, not %s", got, want)
		}
	}
}

// served returns the address of a server of a page.
func served(t *testing.T, handler http.Handler) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

// live shows a folder in ui.
func live(t *testing.T, root string, rows map[string]string) *tab {
	t.Helper()
	b := newTab(t)
	b.do(chromedp.Navigate(served(t, ui.New(report.Live([]string{root})))))
	b.complete(rows)
	return b
}

// TestPageBeforeTheFirstRun opens ui over an empty folder. The row of a run appears when the run starts, and the folder
// of a single run without a round has a page too.
func TestPageBeforeTheFirstRun(t *testing.T) {
	root := t.TempDir()
	handler := ui.New(report.Live([]string{root}))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go handler.Watch(ctx, 20*time.Millisecond)
	b := newTab(t)
	b.do(chromedp.Navigate(served(t, handler)))
	b.until(`document.getElementById("live").textContent === "live"`)
	put(t, filepath.Join(root, "first"), "experiment.json", startingIdentity)
	put(t, filepath.Join(root, "first"), "config.yaml", "name: first\nmethod: promptfl\ntrain: {rounds: 4}\n")
	b.until(`document.querySelector("#runs-table tbody tr") !== null`)
	b.complete(map[string]string{"first": "0 of 4"})
	live(t, filepath.Join(root, "first"), map[string]string{"first": "0 of 4"})
}

// TestPageOfAThousandRuns shows a thousand runs, of which the table has the first 400.
func TestPageOfAThousandRuns(t *testing.T) {
	root := t.TempDir()
	for i := range 1000 {
		dir := filepath.Join(root, fmt.Sprintf("run-%03d", i))
		put(t, dir, "config.yaml", fmt.Sprintf("name: run-%03d\nmethod: promptfl\nseed: %d\ntrain: {rounds: 1}\n", i,
			i))
		put(t, dir, "rounds.jsonl", firstRound)
		put(t, dir, "summary.json", `{"format":2,"rounds":1}`)
	}
	b := live(t, root, map[string]string{"run-000": "done", "run-399": "done"})
	if status := b.text("#runs-status"); !strings.Contains(status, "1000 of 1000 runs") {
		t.Error(status)
	}
	const rows = `document.querySelectorAll("#runs-table tbody tr").length`
	if n := js[int](b, rows); n != 400 {
		t.Errorf("the table has %d rows", n)
	}
	b.click("#runs-all")
	if n := js[int](b, rows); n != 1000 {
		t.Errorf("the table of all runs has %d rows", n)
	}
	b.focus("#runs-find")
	b.key("seed>=900 accuracy=50")
	b.until(rows + ` === 100`)
}
