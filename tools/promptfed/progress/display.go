package progress

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"promptfed/federation/data"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/ort"
)

// Monitor receives the progress of a run. Its methods may be called from any goroutine.
type Monitor interface {
	Work(what string, done, total int) // preparation in images, such as the features of a bundle
	Opened(t *experiment.Task)
	Note(line string)
	Warn(line string)
	Features(t *experiment.Task) (done func()) // may wait before the features are computed
	Start(rounds, clients int)
	Turn(instruction message.Instruction, client int)
	Round(r record.Record)
}

// Quiet is whether everything but warnings and failures is left out. The command sets it before its work begins.
var Quiet atomic.Bool

// refused is done once a display has said why a device does not capture graphs.
var refused sync.Once

// Bar returns a live line on the terminal of standard error, or nil without a terminal or with Quiet.
func Bar(total int, options ...progressbar.Option) *progressbar.ProgressBar {
	if Quiet.Load() || !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return progressbar.NewOptions(total, append([]progressbar.Option{progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionThrottle(100 * time.Millisecond), progressbar.OptionSetPredictTime(true),
		progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish()}, options...)...)
}

// screen prints lines, above the live line if there is one.
type screen struct {
	mu    sync.Mutex
	name  string
	live  bool
	bar   *progressbar.ProgressBar
	began time.Time
	spoke time.Time
}

// say prints a line, unless Quiet is set.
func (s *screen) say(format string, a ...any) {
	if !Quiet.Load() {
		s.warn(format, a...)
	}
}

// warn prints a line.
func (s *screen) warn(format string, a ...any) {
	if s.bar != nil {
		s.bar.Clear()
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", s.name, fmt.Sprintf(format, a...))
	s.spoke = time.Now()
}

// draw updates the live line.
func (s *screen) draw(text string, done int) {
	if s.bar != nil {
		s.bar.Describe(text)
		s.bar.Set(done)
	}
}

func (s *screen) finish() {
	if s.bar != nil {
		s.bar.Finish()
		s.bar = nil
	}
}

// Display prints the progress of long work: one live line on a terminal, plain lines elsewhere. It is safe for
// concurrent use.
type Display struct {
	screen
	series *Series // the series of this run; nil for none
	kind   *rounds // of the series

	what     string
	rounds   int
	heard    int // rounds reported so far
	clients  int
	earlier  int // rounds of earlier calls of the program
	finished int
	turned   bool // a client has worked in this call; earlier rounds are of earlier calls
	last     string
}

// pause is the time between two lines without a terminal.
const pause = 20 * time.Second

// New returns the display of a run.
func New(conf experiment.Config) *Display {
	d := &Display{}
	d.name, d.live = fmt.Sprintf("%s, seed %d", conf.Name, conf.Seed), term.IsTerminal(int(os.Stderr.Fd()))
	return d
}

// Work prints the progress of preparation, in images, or in MiB for files that are fetched.
func (d *Display) Work(what string, done, total int) {
	unit := "images"
	if strings.HasPrefix(what, experiment.FetchPrefix) {
		unit = "MiB"
	}
	d.progress(what, done, total, unit)
}

// Steps prints the progress of work in steps.
func (d *Display) Steps(what string, done, total int) { d.progress(what, done, total, "steps") }

func (d *Display) progress(what string, done, total int, unit string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.what != what {
		d.begin(total, unit)
		if d.what = what; !d.live {
			d.say("%s (%d %s)", what, total, unit)
		}
	}

	if !d.live && done < total && time.Since(d.spoke) > pause {
		d.say("%s, %d of %d %s%s", what, done, total, unit, left(d.began, done, total))
	}

	d.draw(d.name+": "+what, done)
	if done == total {
		d.end()
	}
}

func (d *Display) begin(total int, unit string) {
	d.end()
	d.bar = Bar(total, progressbar.OptionShowCount(), progressbar.OptionSetItsString(unit),
		progressbar.OptionSetWidth(24))
	d.began, d.spoke = time.Now(), time.Now()
}

func (d *Display) end() {
	d.finish()
	d.what = ""
}

// Features returns at once: nothing else computes features beside a run.
func (d *Display) Features(*experiment.Task) func() { return func() {} }

// Start begins the rounds.
func (d *Display) Start(rounds, clients int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rounds, d.clients = rounds, clients
	d.begin(rounds*clients, "client")
	d.draw(d.name, 0)
}

// Turn counts the training of one client.
func (d *Display) Turn(instruction message.Instruction, client int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if instruction.Kind != message.Train {
		return
	}

	d.finished++
	d.turned = true
	at := fmt.Sprintf("round %d/%d, client %d/%d%s", instruction.Round+1, d.rounds, d.finished,
		len(instruction.Clients), d.last)
	if !d.live && d.finished < len(instruction.Clients) && time.Since(d.spoke) > pause {
		d.say("%s%s", at, left(d.began, instruction.Round-d.earlier, d.rounds-d.earlier))
	}

	share := float64(d.clients) / float64(max(1, len(instruction.Clients)))
	d.draw(d.name+" "+at+d.series.left(),
		min(d.rounds*d.clients, instruction.Round*d.clients+int(float64(d.finished)*share)))
}

// Round prints the result of a round.
func (d *Display) Round(result record.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finished, d.spoke = 0, time.Now()
	d.heard++
	if d.series != nil {
		d.kind.round(result.Seconds, !d.turned)
	}

	if !d.turned {
		d.earlier, d.began = result.Round+1, time.Now()
	}

	for _, line := range result.Warnings {
		d.warn("warning: round %d: %s", result.Round+1, line)
	}

	d.last = ", no upload"
	if result.Loss != nil {
		d.last = fmt.Sprintf(", loss %.3f", *result.Loss)
	}
	d.last += accuracyOf(result)
	if d.live {
		return
	}

	line := fmt.Sprintf("round %d/%d%s", result.Round+1, d.rounds, d.last)
	if result.Evaluation != nil {
		line += fmt.Sprintf(" ± %.1f over clients", 100*result.Evaluation.Values[metrics.ClientStd])
	}

	for _, u := range record.MissingTests([]record.Record{result}) {
		line += ", " + u.String()
	}

	d.say("%s, %.1f s%s%s", line, result.Seconds, left(d.began, result.Round+1-d.earlier, d.rounds-d.earlier),
		d.series.left())
}

// left returns the remaining time at the pace since began. It returns "" if nothing is left or no pace is known.
func left(began time.Time, done, total int) string {
	if done <= 0 || done >= total {
		return ""
	}
	t := time.Duration(float64(time.Since(began)) / float64(done) * float64(total-done))
	return fmt.Sprintf(", about %s left", t.Round(time.Second))
}

// accuracyOf returns the main accuracy of a round with the name of its evaluation, or "" for a round without
// evaluation.
func accuracyOf(r record.Record) string {
	switch {
	case r.Evaluation != nil:
		return fmt.Sprintf(", %s accuracy %.1f %%", r.View, 100*r.Evaluation.Accuracy())
	case r.Tested:
		return fmt.Sprintf(", %s accuracy -", r.View)
	}
	return ""
}

// Opened prints the description of the data, and the memory and disk space that its features need.
func (d *Display) Opened(t *experiment.Task) {
	needs, err := t.Storage(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	for _, line := range opened(t) {
		d.say("%s", line)
	}

	if err == nil && needs.Large() { // the computation of features reports an error
		d.say("%s", needs)
	}
}

// OpenedData prints the description of data without a task.
func (d *Display) OpenedData(x *experiment.Data) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	for _, line := range described(x.Info, x.Set) {
		d.say("%s", line)
	}
}

// opened describes the data of an experiment, and why provider auto chose the CPU.
func opened(t *experiment.Task) []string {
	lines := described(t.Info, t.Data.Set)
	if t.Fallback != nil {
		lines = append(lines, fallback(t.Fallback))
	}
	return lines
}

// described describes data in lines: sizes, notes, and the unreadable images that are left out.
func described(info experiment.DataInfo, set *data.Set) []string {
	const most = 5 // images with a line each
	lines := info.Lines()
	for _, note := range info.Notes {
		lines = append(lines, "note: "+note)
	}

	list := set.Skipped
	for _, s := range list[:min(most, len(list))] {
		lines = append(lines, fmt.Sprintf("left out %s: %s", s.Name, s.Reason))
	}

	if len(list) > 0 {
		lines = append(lines, experiment.CountInWords(len(list), "image")+" left out (data.corrupt: skip)")
	}

	return lines
}

func fallback(why error) string {
	return fmt.Sprintf("runs on the CPU (runtime.provider: auto): %v", why)
}

// Note prints a line.
func (d *Display) Note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.say("%s", line)
}

// Warn prints a warning.
func (d *Display) Warn(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.warn("warning: %s", line)
}

// Fallback prints why provider auto chose the CPU, for commands that open no experiment.
func (d *Display) Fallback(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if why != nil {
		d.say("%s", fallback(why))
	}
}

// Close removes the live line, and warns once if a device did not capture graphs. A later run of a series counts
// without the rounds that this one left out.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	if why := ort.Cached().Refusal(); why != "" {
		refused.Do(func() { d.warn("%s", why) })
	}

	if d.series != nil { // a run that stopped early leaves out rounds
		d.kind.left, d.heard = d.kind.left-(d.rounds-d.heard), d.rounds
	}
}

// Bytes returns a function that shows work counted in bytes on a live line, one line for each name in turn, and a
// function that ends the last line.
func Bytes() (show func(what string, done, total int64), end func()) {
	var bar *progressbar.ProgressBar
	var now string
	end = func() {
		if bar != nil {
			bar.Finish()
		}
	}

	return func(what string, done, total int64) {
		if what != now {
			end()
			now, bar = what, Bar(-1, progressbar.OptionShowBytes(true), progressbar.OptionSetDescription(what))
		}
		if bar != nil {
			bar.ChangeMax64(total)
			bar.Set64(done)
		}
	}, end
}
