package progress

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
)

// Monitor receives the progress of a run. Its methods may be called from any goroutine.
type Monitor interface {
	Work(what string, done, total int)
	Opened(b *experiment.Built)
	Fallback(why error)
	Warn(line string)
	Features(b *experiment.Built) (done func()) // may wait before the features are computed
	Start(rounds, clients int)
	Turn(o message.Instruction, client int)
	Round(r record.Record)
}

// Display prints the progress of long work: one live line on a terminal, plain lines elsewhere. It is safe for
// concurrent use.
type Display struct {
	name   string
	live   bool
	series *Series // the series of this run; nil for none

	mu       sync.Mutex
	bar      *progressbar.ProgressBar
	what     string
	rounds   int
	heard    int // rounds reported so far
	clients  int
	earlier  int // rounds of earlier calls of the program
	finished int
	turned   bool // a client has worked in this call; earlier rounds are of earlier calls
	last     string
	began    time.Time
	spoke    time.Time
}

// quiet is the time between two lines without a terminal.
const quiet = 20 * time.Second

// New returns the display of a run.
func New(conf experiment.Config) *Display {
	return &Display{name: fmt.Sprintf("%s, seed %d", conf.Name, conf.Seed), live: term.IsTerminal(int(os.Stderr.Fd()))}
}

// Work prints the progress of preparation in images, such as the features of a bundle.
func (d *Display) Work(what string, done, total int) { d.progress(what, done, total, "images") }

// Steps prints the progress of work in steps.
func (d *Display) Steps(what string, done, total int) { d.progress(what, done, total, "steps") }

func (d *Display) progress(what string, done, total int, unit string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.what != what {
		d.end()
		d.what = what
		d.begin(total, unit)
		d.describe(d.name + ": " + what)
		d.began, d.spoke = time.Now(), time.Now()
		if !d.live {
			fmt.Fprintf(os.Stderr, "%s: %s (%d %s)\n", d.name, what, total, unit)
		}
	}
	if !d.live && done < total && time.Since(d.spoke) > quiet {
		d.spoke = time.Now()
		fmt.Fprintf(os.Stderr, "%s: %s, %d of %d %s%s\n", d.name, what, done, total, unit, left(d.began, done, total))
	}
	if d.bar != nil {
		d.bar.Set(done)
	}
	if done == total {
		d.end()
	}
}

func (d *Display) begin(total int, unit string) {
	if !d.live {
		return
	}
	d.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
		progressbar.OptionSetItsString(unit), progressbar.OptionSetWidth(24),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
}

func (d *Display) describe(text string) {
	if d.bar != nil {
		d.bar.Describe(text)
	}
}

func (d *Display) end() {
	if d.bar != nil {
		d.bar.Finish()
		d.bar = nil
	}
	d.what = ""
}

func (d *Display) Features(*experiment.Built) func() { return func() {} }

// Start begins the rounds.
func (d *Display) Start(rounds, clients int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	d.rounds, d.clients, d.began, d.spoke = rounds, clients, time.Now(), time.Now()
	if d.series != nil && d.series.began.IsZero() {
		d.series.began = d.began
	}
	d.begin(rounds*clients, "client")
	d.describe(d.name)
}

// Turn counts the training of one client.
func (d *Display) Turn(o message.Instruction, client int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.Kind != message.Train {
		return
	}
	d.finished++
	d.turned = true
	if !d.live && d.finished < len(o.Clients) && time.Since(d.spoke) > quiet {
		d.spoke = time.Now()
		fmt.Fprintf(os.Stderr, "%s: round %d/%d, client %d/%d%s%s\n", d.name, o.Round+1, d.rounds, d.finished,
			len(o.Clients), d.last, left(d.began, o.Round-d.earlier, d.rounds-d.earlier))
	}
	if d.bar != nil {
		share := float64(d.clients) / float64(max(1, len(o.Clients)))
		d.bar.Set(min(d.rounds*d.clients, o.Round*d.clients+int(float64(d.finished)*share)))
		d.describe(fmt.Sprintf("%s round %d/%d, client %d/%d%s%s", d.name, o.Round+1, d.rounds, d.finished,
			len(o.Clients), d.last, d.series.left()))
	}
}

// Round prints the result of a round.
func (d *Display) Round(r record.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finished, d.spoke = 0, time.Now()
	d.heard++
	d.series.round(!d.turned)
	if !d.turned {
		d.earlier, d.began = r.Round+1, time.Now()
	}
	if len(r.Warnings) > 0 && d.bar != nil {
		d.bar.Clear()
	}
	for _, line := range r.Warnings {
		fmt.Fprintf(os.Stderr, "%s: warning: round %d: %s\n", d.name, r.Round+1, line)
	}
	d.last = fmt.Sprintf(", loss %.3f", r.Loss)
	d.last += accuracyOf(r)
	if d.live {
		return
	}
	line := fmt.Sprintf("%s: round %d/%d%s", d.name, r.Round+1, d.rounds, d.last)
	if r.Evaluation != nil {
		line += fmt.Sprintf(" ± %.1f over clients", 100*r.Evaluation.Values[metrics.ClientStd])
	}
	for _, u := range record.MissingTests([]record.Record{r}) {
		line += ", " + u.String()
	}
	fmt.Fprintf(os.Stderr, "%s, %.1f s%s%s\n", line, r.Seconds,
		left(d.began, r.Round+1-d.earlier, d.rounds-d.earlier), d.series.left())
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

// Opened prints the description of the data, notes about it, and the unreadable images that it leaves out.
func (d *Display) Opened(b *experiment.Built) {
	needs, err := b.Storage(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	for _, line := range b.Info.Lines() {
		fmt.Fprintf(os.Stderr, "%s: %s\n", d.name, line)
	}
	for _, note := range b.Info.Notes {
		fmt.Fprintf(os.Stderr, "%s: note: %s\n", d.name, note)
	}
	if err == nil && needs.Large() { // the computation of features reports an error
		fmt.Fprintf(os.Stderr, "%s: %s\n", d.name, needs)
	}
	list := b.Set.Skipped
	for i, s := range list {
		if i == 5 && len(list) > 6 {
			fmt.Fprintf(os.Stderr, "%s: ... and %d more\n", d.name, len(list)-i)
			break
		}
		fmt.Fprintf(os.Stderr, "%s: left out %s: %s\n", d.name, s.Name, s.Reason)
	}
	if len(list) > 0 {
		fmt.Fprintf(os.Stderr, "%s: %d images left out (data.corrupt: skip)\n", d.name, len(list))
	}
}

// Warn prints a warning.
func (d *Display) Warn(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	fmt.Fprintf(os.Stderr, "%s: warning: %s\n", d.name, line)
}

// Fallback prints why provider auto chose the CPU.
func (d *Display) Fallback(why error) {
	if why != nil {
		fmt.Fprintf(os.Stderr, "%s: runs on the CPU (runtime.provider: auto): %v\n", d.name, why)
	}
}

func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	if d.series != nil { // a run that stopped early leaves out rounds
		d.series.Rounds, d.heard = d.series.Rounds-(d.rounds-d.heard), d.rounds
	}
}
