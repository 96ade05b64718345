package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
)

// Served is one state of a live page. A server returns its HTML, and sends the differences from an earlier state to
// open pages.
type Served struct {
	HTML    []byte
	Version string            // version of the report
	shape   []byte            // everything except the runs' numbers
	runs    map[string][]byte // JSON of each run by its folder
	block   block
}

// Serve returns the page of a report with Live set.
func Serve(r Report) (*Served, error) {
	view, block, err := newView(r)
	if err != nil {
		return nil, fmt.Errorf("page %q: %w", r.Title, err)
	}

	served := &Served{Version: r.Version, runs: map[string][]byte{}, block: block}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, view); err != nil {
		return nil, err
	}

	served.HTML = bytes.Clone(out.Bytes())
	for _, run := range block.Runs {
		if served.runs[run.Folder], err = json.Marshal(run); err != nil {
			return nil, err
		}
	}

	block.Runs, block.Version = nil, ""
	common, err := json.Marshal(block)
	if err != nil {
		return nil, err
	}

	view.Data = template.JS(common)
	out.Reset()
	err = pageTemplate.Execute(&out, view)
	for _, run := range served.block.Runs {
		fmt.Fprintf(&out, "%q %q", run.Folder, run.State)
	}

	served.shape = out.Bytes()
	return served, err
}

// Since returns a JSON list of the runs that changed since an earlier page, or nil for none. all reports that something
// else changed too, so that the page must be reloaded.
func (s *Served) Since(old *Served) (runs []byte, all bool) {
	if s == old {
		return nil, false
	}

	if old == nil || !bytes.Equal(s.shape, old.shape) {
		return nil, true
	}

	var changed []json.RawMessage
	for _, run := range s.block.Runs {
		if !bytes.Equal(s.runs[run.Folder], old.runs[run.Folder]) {
			changed = append(changed, s.runs[run.Folder])
		}
	}

	if changed == nil {
		return nil, false
	}

	runs, err := json.Marshal(changed)
	return runs, err != nil
}
