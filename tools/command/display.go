package command

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
)

// monitor hears how a run goes, from any goroutine.
type monitor interface {
	work(what string, done, total int)
	opened(b *experiment.Built)
	fallback(why error)
	warn(line string)
	features(b *experiment.Built) (done func()) // before features are computed, which may have to wait, and afterwards
	start(rounds, clients int)
	turn(o message.Instruction, client int)
	round(r record.Record)
}

// display shows long work: one live line on a terminal, plain lines elsewhere. It is safe for concurrent use.
type display struct {
	name string
	live bool

	mu       sync.Mutex
	bar      *progressbar.ProgressBar
	what     string
	rounds   int
	clients  int
	finished int
	last     string
	began    time.Time
}

func newDisplay(conf experiment.Config) *display {
	return &display{name: conf.Name, live: term.IsTerminal(int(os.Stderr.Fd()))}
}

// work shows preparation, such as the features of a bundle.
func (d *display) work(what string, done, total int) { d.progress(what, done, total, "images") }

// steps shows work that is counted in steps.
func (d *display) steps(what string, done, total int) { d.progress(what, done, total, "steps") }

func (d *display) progress(what string, done, total int, unit string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.what != what {
		d.end()
		d.what = what
		d.begin(total, unit)
		d.describe(d.name + ": " + what)
		if !d.live {
			fmt.Fprintf(os.Stderr, "%s: %s (%d %s)\n", d.name, what, total, unit)
		}
	}
	if d.bar != nil {
		d.bar.Set(done)
	}
	if done == total {
		d.end()
	}
}

func (d *display) begin(total int, unit string) {
	if !d.live {
		return
	}
	d.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
		progressbar.OptionSetItsString(unit), progressbar.OptionSetWidth(24),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
}

func (d *display) describe(text string) {
	if d.bar != nil {
		d.bar.Describe(text)
	}
}

func (d *display) end() {
	if d.bar != nil {
		d.bar.Finish()
		d.bar = nil
	}
	d.what = ""
}

func (d *display) features(*experiment.Built) func() { return func() {} }

// start begins the rounds.
func (d *display) start(rounds, clients int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	d.rounds, d.clients, d.began = rounds, clients, time.Now()
	d.begin(rounds*clients, "client")
	d.describe(d.name)
}

// turn counts one client's training.
func (d *display) turn(o message.Instruction, client int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.Kind != message.Train {
		return
	}
	d.finished++
	if d.bar != nil {
		share := float64(d.clients) / float64(max(1, len(o.Clients)))
		d.bar.Set(min(d.rounds*d.clients, o.Round*d.clients+int(float64(d.finished)*share)))
		d.describe(fmt.Sprintf("%s round %d/%d, client %d/%d%s", d.name, o.Round+1, d.rounds, d.finished,
			len(o.Clients), d.last))
	}
}

// round shows what a round gave.
func (d *display) round(r record.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finished = 0
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
		line += fmt.Sprintf(" ± %.1f over clients", 100*r.Std)
	}
	for _, u := range record.MissingTests([]record.Record{r}) {
		line += ", " + u.String()
	}
	left := time.Duration(float64(time.Since(d.began)) / float64(r.Round+1) * float64(d.rounds-r.Round-1))
	fmt.Fprintf(os.Stderr, "%s, %.1f s, %s left\n", line, r.Seconds, left.Round(time.Second))
}

// accuracyOf is the headline of a round, with the evaluation that it is of; empty where it was not tested.
func accuracyOf(r record.Record) string {
	switch {
	case r.Evaluation != nil:
		return fmt.Sprintf(", %s accuracy %.1f %%", r.View, 100*r.Accuracy)
	case r.Tested:
		return fmt.Sprintf(", %s accuracy -", r.View)
	}
	return ""
}

// opened tells what the data was found to be, what there is to note about it, and which images were left out because
// they cannot be read.
func (d *display) opened(b *experiment.Built) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	for _, line := range b.Info.Lines() {
		fmt.Fprintf(os.Stderr, "%s: %s\n", d.name, line)
	}
	for _, note := range b.Info.Notes {
		fmt.Fprintf(os.Stderr, "%s: note: %s\n", d.name, note)
	}
	if s, err := b.Storage(); err == nil && s.Large() { // an error comes with the features
		fmt.Fprintf(os.Stderr, "%s: %s\n", d.name, s)
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

// warn shows what is probably wrong.
func (d *display) warn(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	fmt.Fprintf(os.Stderr, "%s: warning: %s\n", d.name, line)
}

// fallback tells why provider auto took the CPU.
func (d *display) fallback(why error) {
	if why != nil {
		fmt.Fprintf(os.Stderr, "%s: runs on the CPU (runtime.provider: auto): %v\n", d.name, why)
	}
}

func (d *display) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}
