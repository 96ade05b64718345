package progress

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"promptfed/configs"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
)

// Sweep prints the progress of all cells of a sweep together: one live line on a terminal, plain lines elsewhere. It is
// safe for concurrent use. The bar counts hundredths of rounds.
type Sweep struct {
	screen
	cells   int // of the sweep
	over    int // finished or failed cells, including those of earlier calls
	total   int // rounds of the cells to run
	jobs    int // cells at a time
	pace    pace
	running []*Cell
	said    map[string]bool
	failed  map[string]string // first cell that failed for a reason
}

const roundUnits = 100

// NewSweep returns the display of the cells in todo, beside done finished cells.
func NewSweep(sweep *configs.Sweep, done int, todo []configs.Cell, jobs int) *Sweep {
	display := &Sweep{cells: done + len(todo), over: done, jobs: jobs, pace: pace{}, said: map[string]bool{},
		failed: map[string]string{}}
	display.name, display.began = sweep.Name, time.Now()
	for _, c := range todo {
		display.total += c.Config.Train.Rounds
		display.pace.rounds(c.Config).left += c.Config.Train.Rounds
	}

	line := experiment.CountInWords(display.cells, "cell")
	if done > 0 {
		line += fmt.Sprintf(", %d already done", done)
	}

	display.say("%s, %d at a time", line, jobs)
	for _, n := range sweep.Notes {
		display.say("note: %s", n)
	}

	for _, h := range sweep.Hidden {
		display.say("%s, so the labels do not describe what runs", h)
	}

	if display.total > 0 {
		display.bar = Bar(display.total*roundUnits, progressbar.OptionSetWidth(16),
			progressbar.OptionSetPredictTime(false))
	}

	return display
}

// once prints a line by say or warn unless another cell has printed it.
func (d *Sweep) once(print func(format string, a ...any), line string) {
	if !d.said[line] {
		d.said[line] = true
		print("%s", line)
	}
}

// show updates the bar: rounds of earlier calls and of failed cells count as done. Without a terminal it prints a line
// each minute.
func (d *Sweep) show() {
	var parts []string
	done := d.total * roundUnits
	for _, kind := range d.pace {
		done -= kind.left * roundUnits
	}

	for _, c := range d.running {
		parts = append(parts, c.folder+" "+c.at)
		done += c.units
	}

	if d.bar == nil {
		if len(parts) > 0 && time.Since(d.spoke) > time.Minute {
			d.say("%d/%d cells done, running %s%s", d.over, d.cells, strings.Join(parts, "; "), d.left())
		}
		return
	}

	text := []rune(fmt.Sprintf("%s %d/%d cells%s: %s", d.name, d.over, d.cells, d.left(), strings.Join(parts, "; ")))
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && len(text) > max(20, width-45) {
		text = append(text[:max(20, width-45)-1], '…')
	}

	d.draw(string(text), done)
}

// left describes the remaining time. Fewer cells than jobs may be left.
func (d *Sweep) left() string { return d.pace.text(max(1, min(d.jobs, d.cells-d.over)), "") }

// Cell begins a cell. Cells with the same features use the locks in features.
func (d *Sweep) Cell(c configs.Cell, features *FeatureLocks) *Cell {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &Cell{all: d, wait: features, folder: c.Folder, rounds: c.Config.Train.Rounds, kind: d.pace.rounds(c.Config),
		at: "opening", began: time.Now()}
	d.running = append(d.running, out)
	d.show()
	return out
}

// end removes a cell from the running cells, and its unfinished rounds from those that are left.
func (d *Sweep) end(folder string) {
	d.running = slices.DeleteFunc(d.running, func(c *Cell) bool {
		if c.folder == folder {
			c.kind.left -= c.rounds - c.round0
			d.over++
		}
		return c.folder == folder
	})
}

// Failed ends a cell and prints why it failed. A reason that another cell had is printed as that of the first.
func (d *Sweep) Failed(c configs.Cell, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(c.Folder)
	if first, known := d.failed[why]; known {
		why = "for the same reason as " + first
	} else {
		d.failed[why] = c.Folder
	}

	d.warn("%d/%d cells, %s failed: %s", d.over, d.cells, c.Folder, why)
	d.show()
}

// Close removes the live line.
func (d *Sweep) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finish()
}

// Cell prints the progress of one cell of a sweep.
type Cell struct {
	all    *Sweep
	wait   *FeatureLocks
	folder string
	began  time.Time

	rounds int
	kind   *rounds
	at     string // current work
	units  int    // hundredths of the current round
	round0 int    // rounds before the current one
	turned int    // clients that have trained in the current round
	fresh  bool   // a client has worked in this call; earlier rounds are of earlier calls
}

func (c *Cell) locked(do func()) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	do()
	c.all.show()
}

// Work shows preparation as the state of the cell in the live line.
func (c *Cell) Work(what string, done, total int) {
	c.locked(func() { c.at = fmt.Sprintf("%s %d/%d", what, done, total) })
}

// Opened prints the description of the data, once for all cells that have the same.
func (c *Cell) Opened(t *experiment.Task) {
	c.locked(func() {
		for _, line := range opened(t) {
			c.all.once(c.all.say, line)
		}
	})
}

// Note prints a line behind the folder of the cell.
func (c *Cell) Note(line string) {
	c.locked(func() { c.all.once(c.all.say, c.folder+": "+line) })
}

// Warn prints a warning, once for all cells that have it.
func (c *Cell) Warn(line string) {
	c.locked(func() { c.all.once(c.all.warn, "warning: "+line) })
}

// Features waits while another cell computes the same features. The cell must call done when it has them.
func (c *Cell) Features(t *experiment.Task) func() {
	c.locked(func() { c.at = "waiting for features" })
	return c.wait.Lock(t)
}

// Start begins the rounds, of which the live line shows the number.
func (c *Cell) Start(rounds, _ int) {
	c.locked(func() { c.at = fmt.Sprintf("round 1/%d", rounds) })
}

// Turn counts the training of one client as its part of a round.
func (c *Cell) Turn(instruction message.Instruction, _ int) {
	c.locked(func() {
		c.fresh = true
		if instruction.Kind == message.Train {
			c.turned++
			c.units = min(roundUnits, roundUnits*c.turned/(len(instruction.Clients)+1))
		}
	})
}

// Round counts a finished round and prints its warnings. Rounds of an earlier call come without turns.
func (c *Cell) Round(result record.Record) {
	c.locked(func() {
		c.round0, c.turned, c.units = result.Round+1, 0, 0
		c.kind.round(result.Seconds, !c.fresh)
		for _, line := range result.Warnings {
			c.all.once(c.all.warn, "warning: "+line)
		}
		c.at = fmt.Sprintf("round %d/%d", min(c.rounds, result.Round+2), c.rounds)
		c.at += strings.TrimPrefix(accuracyOf(result), ",")
	})
}

// Done ends a finished cell.
func (c *Cell) Done(s record.Summary) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.end(c.folder)
	if c.all.bar == nil {
		accuracy := "-"
		if s.Headline != nil {
			accuracy = fmt.Sprintf("%.1f %%", 100*s.Last)
		}
		c.all.say("%d/%d cells done, %s: %s accuracy %s in %s%s", c.all.over, c.all.cells, c.folder, s.View, accuracy,
			time.Since(c.began).Round(100*time.Millisecond), c.all.left())
	}

	c.all.show()
}
