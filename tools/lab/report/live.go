package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/ui"
	"promptfed/tools/promptfed/runfolder"
)

// Live returns the page source of some folders for a server that keeps the page current.
func Live(dirs []string) ui.Source {
	p := &livePage{dirs: dirs}
	return ui.Source{Version: func() uint64 { return results.Fingerprint(dirs...) }, Report: p.report,
		Details: p.details, Run: p.run}
}

// livePage rebuilds the page of some folders repeatedly.
type livePage struct {
	dirs  []string
	cache results.Cache
	last  *Report
	shape string // names and states of all runs at the time of the tables
	runs  map[*results.Run]page.Run
}

// report reads the changes. It rebuilds the title, the tables and the tests only if a run came, finished or failed.
func (p *livePage) report() (page.Report, error) {
	folder, err := filepath.Abs(p.dirs[0])
	if err != nil {
		return page.Report{}, err
	}

	found, err := p.cache.Load(p.dirs...)
	if errors.Is(err, results.ErrNoRuns) {
		p.last, p.shape, p.runs = nil, "", nil
		return page.Report{Title: folder, Live: true, Panels: pagePanels(true), Notes: []string{"There are no runs " +
			"yet; they appear here when they start."}}, nil
	}

	if err != nil {
		return page.Report{}, err
	}

	report := &Report{Results: found, folder: folder, live: true}
	var b strings.Builder
	var order []*results.Run
	for _, g := range found.Groups {
		fmt.Fprintf(&b, "%q %q", g.Name, g.Experiment)
		for _, run := range g.Runs {
			fmt.Fprintf(&b, "%q %s", run.Dir, run.State)
			order = append(order, run)
		}
	}

	shape := b.String()
	if p.last != nil && shape == p.shape {
		report.heading, report.subtitle = p.last.heading, p.last.subtitle
		report.main, report.more, report.tests, report.kept = p.last.main, p.last.more, p.last.tests, p.runs
	} else {
		if err := report.build(context.Background()); err != nil {
			return page.Report{}, err
		}
		var folders []string
		for _, dir := range p.dirs {
			if dir, err := filepath.Abs(dir); err == nil {
				folders = append(folders, filepath.Base(dir))
			}
		}
		report.heading += " in " + listed(folders, "folders")
		if began := dates(order); began != "" {
			report.subtitle += " · " + began
		}
	}

	p.last, p.shape = report, shape
	out, err := report.page()
	out.Live, p.runs = true, map[*results.Run]page.Run{}
	for i, run := range out.Runs {
		p.runs[order[i]] = run
	}

	if len(found.Plans) != 1 || len(found.Of(nil)) > 0 {
		out.Card = nil
	}

	return out, err
}

// run returns a copy of the run that the page calls id.
func (p *livePage) run(id string) (results.Run, error) {
	if p.last != nil {
		for run := range results.Runs(p.last.Groups) {
			if run.Export(p.last.folder).Folder == id {
				return *run, nil
			}
		}
	}

	return results.Run{}, ui.ErrNoRun
}

// details reads the page's data about a single run.
func (p *livePage) details(id string) (json.RawMessage, error) {
	run, err := p.run(id)
	if err != nil {
		return nil, err
	}
	return details(&run, origin(run.Dir))
}

// dates returns the day on which the first run began and, if it is another, that of the last run.
func dates(runs []*results.Run) string {
	var first, last time.Time
	for _, run := range runs {
		if p, err := runfolder.ReadProvenance(run.Dir); err == nil && len(p.Calls) > 0 {
			at := p.Calls[0].Start.Local()
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
	}

	a, b := first.Format("2 January 2006"), last.Format("2 January 2006")
	switch {
	case first.IsZero():
		return ""
	case a == b:
		return "began on " + a
	}

	return "began on " + a + " to " + b
}

// origin describes how a run was started, from its folder. Reports omit it, because it differs between two runs of one
// experiment, whose reports have the same bytes.
func origin(dir string) []page.Pair {
	provenance, err := runfolder.ReadProvenance(dir)
	if err != nil || len(provenance.Calls) == 0 {
		return nil
	}

	first, last := provenance.Calls[0], provenance.Calls[len(provenance.Calls)-1]
	out := []page.Pair{{Name: "began", Value: first.Start.Local().Format(time.DateTime)}}
	if last.Seconds != nil {
		took := time.Duration(*last.Seconds * float64(time.Second)).Round(time.Second)
		out = append(out, page.Pair{Name: "took", Value: took.String()})
	}

	if provenance.Data != nil {
		out = append(out, page.Pair{Name: "data", Value: provenance.Data.Set + ", digest " + provenance.Data.Digest})
	}

	return append(out, page.Pair{Name: "host", Value: last.Host},
		page.Pair{Name: "version", Value: strings.TrimSpace(last.Version + " " + last.Commit)},
		page.Pair{Name: "command", Value: strings.Join(last.Command, " ")})
}
