package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"promptfed/tools/report/page"
	"promptfed/tools/report/results"
	"promptfed/tools/report/ui"
	"promptfed/tools/runfolder"
)

const (
	runsFolder = "runs" // where runs are looked for where no folder is named
	uiPort     = 7007
	uiEvery    = time.Second // between looks at the folders
)

func uiCommand() *cobra.Command {
	var port int
	var std string
	c := &cobra.Command{Use: "ui [DIR...] [--port N]",
		Short: "a web page over all runs and sweeps below some folders (" + runsFolder + "), live while they go"}
	c.Flags().IntVar(&port, "port", uiPort, "of 127.0.0.1; 0 for any that is free")
	c.Flags().StringVar(&std, "std", string(results.Population), "standard deviation over seeds: population or sample")
	c.RunE = func(c *cobra.Command, dirs []string) error {
		if err := (reportOptions{std: std}).check(); err != nil {
			return usageError{err}
		}
		if len(dirs) == 0 {
			dirs = []string{runsFolder}
		}
		for _, dir := range dirs {
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return usageError{fmt.Errorf("%s is no folder: name one with run folders in or below it", dir)}
			}
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("port %d cannot be used: %w; choose another with --port", port, err)
		}
		fmt.Printf("http://%s (until Ctrl-C)\n", l.Addr())
		return serveUI(c.Context(), l, dirs, std)
	}
	return c
}

// serveUI serves the page about some folders until the context ends.
func serveUI(ctx context.Context, l net.Listener, dirs []string, std string) error {
	live := &livePage{dirs: dirs, options: reportOptions{std: std}}
	handler := ui.New(ui.Source{Stamp: func() uint64 { return results.Stamp(dirs...) }, Report: live.report,
		Details: live.details})
	go handler.Watch(ctx, uiEvery)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// livePage makes the page of some folders again and again.
type livePage struct {
	dirs    []string
	options reportOptions
	cache   results.Cache
	last    *report
	shape   string // names and states of all runs, when the tables were made
	runs    map[*results.Run]page.Run
}

// report reads what changed. Tables and tests, which are of finished runs, are made again where a run finished.
func (p *livePage) report() (page.Report, error) {
	folder, err := filepath.Abs(p.dirs[0])
	if err != nil {
		return page.Report{}, err
	}
	found, err := p.cache.Load(p.dirs...)
	if errors.Is(err, results.ErrNoRuns) {
		p.last, p.shape, p.runs = nil, "", nil
		return page.Report{Title: folder, Live: true, Notes: []string{"There are no runs yet; they appear here when " +
			"they begin."}}, nil
	}
	if err != nil {
		return page.Report{}, err
	}
	r := &report{reportOptions: p.options, Results: found, folder: folder, live: true}
	var b strings.Builder
	var order []*results.Run
	for _, g := range found.Groups {
		fmt.Fprintf(&b, "%q", g.Name)
		for _, run := range g.Runs {
			fmt.Fprintf(&b, "%q %s", run.Dir, run.State)
			order = append(order, run)
		}
	}
	shape := b.String()
	if p.last != nil && shape == p.shape {
		r.main, r.more, r.tests, r.kept = p.last.main, p.last.more, p.last.tests, p.runs
	} else if err := r.build(); err != nil {
		return page.Report{}, err
	}
	p.last, p.shape = r, shape
	out, err := r.page()
	out.Live, p.runs = true, map[*results.Run]page.Run{}
	for i, run := range out.Runs {
		p.runs[order[i]] = run
	}
	if len(found.Plans) != 1 || len(found.Of(nil)) > 0 {
		out.Title, out.Card = folder, nil
	}
	return out, err
}

// details reads what the page shows of one run alone.
func (p *livePage) details(id string) (page.Run, error) {
	if p.last != nil {
		for _, g := range p.last.Groups {
			for _, run := range g.Runs {
				if p.last.seen(run.Dir) == id {
					out := page.Run{Config: run.Config, Facts: origin(run.Dir)}
					return out, pageDetails(run, &out)
				}
			}
		}
	}
	return page.Run{}, ui.ErrNoRun
}

// origin is how a run came about, as far as its folder says. Reports leave it out: it differs between two runs of one
// experiment, whose reports have the same bytes.
func origin(dir string) []page.Pair {
	f, err := os.Open(filepath.Join(dir, runfolder.ProvenanceFile))
	if err != nil {
		return nil
	}
	defer f.Close()
	var p runfolder.Provenance
	if json.NewDecoder(io.LimitReader(f, 4<<20)).Decode(&p) != nil || len(p.Calls) == 0 {
		return nil
	}
	first, last := p.Calls[0], p.Calls[len(p.Calls)-1]
	out := []page.Pair{{Name: "began", Value: first.Start.Local().Format(time.DateTime)}}
	if last.Seconds != nil {
		took := time.Duration(*last.Seconds * float64(time.Second)).Round(time.Second)
		out = append(out, page.Pair{Name: "took", Value: took.String()})
	}
	if p.Data != nil {
		out = append(out, page.Pair{Name: "data", Value: p.Data.Set + ", digest " + p.Data.Digest})
	}
	return append(out, page.Pair{Name: "host", Value: last.Host},
		page.Pair{Name: "version", Value: strings.TrimSpace(last.Version + " " + last.Commit)},
		page.Pair{Name: "command", Value: strings.Join(last.Command, " ")})
}
