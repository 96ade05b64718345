package progress

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
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
	name string
	live bool

	mu      sync.Mutex
	bar     *progressbar.ProgressBar
	cells   int // of the sweep
	over    int // finished or failed cells, including those of earlier calls
	total   int // units of the cells to run
	units   int // finished units
	running []*Cell
	said    map[string]bool
	began   time.Time
	spoke   time.Time
}

const roundUnits = 100

// NewSweep returns the display of the cells in todo, beside done finished cells.
func NewSweep(s *configs.Sweep, done int, todo []configs.Cell, jobs int) *Sweep {
	d := &Sweep{name: s.Name, live: term.IsTerminal(int(os.Stderr.Fd())), cells: done + len(todo), over: done,
		said: map[string]bool{}, began: time.Now(), spoke: time.Now()}
	for _, c := range todo {
		d.total += c.Config.Train.Rounds * roundUnits
	}
	line := s.Name + ": " + experiment.CountInWords(d.cells, "cell")
	if done > 0 {
		line += fmt.Sprintf(", %d already done", done)
	}
	fmt.Fprintf(os.Stderr, "%s, %d at a time\n", line, jobs)
	for _, n := range s.Notes {
		fmt.Fprintf(os.Stderr, "%s: note: %s\n", s.Name, n)
	}
	for _, h := range s.Hidden {
		fmt.Fprintf(os.Stderr, "%s: %s, so the labels do not describe what runs\n", s.Name, h)
	}
	if d.live && d.total > 0 {
		d.bar = progressbar.NewOptions(d.total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(16),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(true),
			progressbar.OptionFullWidth(),
			progressbar.OptionClearOnFinish())
	}
	return d
}

// say prints a line above the bar.
func (d *Sweep) say(format string, a ...any) {
	if d.bar != nil {
		d.bar.Clear()
	}
	fmt.Fprintf(os.Stderr, d.name+": "+format+"\n", a...)
	d.spoke = time.Now()
}

// once prints a line unless another cell has printed it.
func (d *Sweep) once(format string, a ...any) {
	line := fmt.Sprintf(format, a...)
	if !d.said[line] {
		d.said[line] = true
		d.say("%s", line)
	}
}

// draw updates the bar. Without a terminal it prints a line each minute.
func (d *Sweep) draw() {
	var parts []string
	for _, c := range d.running {
		parts = append(parts, c.folder+" "+c.at)
	}
	if d.bar == nil {
		if len(parts) > 0 && time.Since(d.spoke) > time.Minute {
			d.say("%d/%d cells done, running %s%s", d.over, d.cells, strings.Join(parts, "; "),
				left(d.began, d.units, d.total))
		}
		return
	}
	text := []rune(fmt.Sprintf("%s %d/%d cells: %s", d.name, d.over, d.cells, strings.Join(parts, "; ")))
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && len(text) > max(20, width-45) {
		text = append(text[:max(20, width-45)-1], '…')
	}
	d.bar.Describe(string(text))
	d.bar.Set(d.units)
}

// Cell begins a cell. Cells with the same features use the locks in features.
func (d *Sweep) Cell(c configs.Cell, features *FeatureLocks) *Cell {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &Cell{all: d, wait: features, folder: c.Folder, rounds: c.Config.Train.Rounds, at: "opening",
		began: time.Now()}
	d.running = append(d.running, out)
	d.draw()
	return out
}

// end removes a cell from the running cells, and its unfinished units from the total.
func (d *Sweep) end(folder string) {
	i := slices.IndexFunc(d.running, func(c *Cell) bool { return c.folder == folder })
	if i < 0 {
		return
	}
	d.less(d.running[i].rounds*roundUnits - d.running[i].units)
	d.running = slices.Delete(d.running, i, i+1)
	d.over++
}

// less removes units from the total.
func (d *Sweep) less(units int) {
	d.total -= units
	if d.bar != nil && d.total > 0 {
		d.bar.ChangeMax(d.total)
	}
}

func (d *Sweep) Failed(c configs.Cell, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(c.Folder)
	d.say("%d/%d cells, %s failed: %s", d.over, d.cells, c.Folder, why)
	d.draw()
}

func (d *Sweep) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Finish()
		d.bar = nil
	}
}

// Cell prints the progress of one cell of a sweep.
type Cell struct {
	all    *Sweep
	wait   *FeatureLocks
	folder string
	began  time.Time

	rounds, clients int
	at              string // current work
	units           int    // units of this cell in this call
	round0          int    // rounds before the current one
	turned          int    // clients that have trained in the current round
	fresh           bool   // a client has worked in this call; earlier rounds are of earlier calls
}

func (c *Cell) locked(do func()) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	do()
	c.all.draw()
}

func (c *Cell) Work(what string, done, total int) {
	c.locked(func() { c.at = fmt.Sprintf("%s %d/%d", what, done, total) })
}

func (c *Cell) Opened(b *experiment.Built) {
	c.locked(func() {
		for _, line := range b.Info.Lines() {
			c.all.once("%s", line)
		}
		for _, note := range b.Info.Notes {
			c.all.once("note: %s", note)
		}
		list := b.Set.Skipped
		for i, s := range list {
			if i == 5 {
				break
			}
			c.all.once("left out %s: %s", s.Name, s.Reason)
		}
		if len(list) > 0 {
			c.all.once("%d images left out (data.corrupt: skip)", len(list))
		}
	})
}

func (c *Cell) Fallback(why error) {
	if why != nil {
		c.locked(func() { c.all.once("runs on the CPU (runtime.provider: auto): %v", why) })
	}
}

func (c *Cell) Warn(line string) {
	c.locked(func() { c.all.once("warning: %s", line) })
}

func (c *Cell) Features(b *experiment.Built) func() {
	c.locked(func() { c.at = "waiting for features" })
	return c.wait.Lock(b)
}

func (c *Cell) Start(rounds, clients int) {
	c.locked(func() { c.clients, c.at = clients, fmt.Sprintf("round 1/%d", rounds) })
}

func (c *Cell) Turn(o message.Instruction, _ int) {
	c.locked(func() {
		c.fresh = true
		if o.Kind == message.Train {
			c.turned++
			c.move(c.round0*roundUnits + roundUnits*c.turned/max(1, len(o.Clients)+1))
		}
	})
}

// move counts units up to a position in the cell.
func (c *Cell) move(to int) {
	if to > c.units {
		c.all.units += to - c.units
		c.units = to
	}
}

func (c *Cell) Round(r record.Record) {
	c.locked(func() {
		c.round0, c.turned = r.Round+1, 0
		for _, line := range r.Warnings {
			c.all.once("warning: %s", line)
		}
		if c.fresh {
			c.move(c.round0 * roundUnits)
		} else { // of an earlier call
			c.all.less(c.round0*roundUnits - c.units)
			c.units = c.round0 * roundUnits
		}
		c.at = fmt.Sprintf("round %d/%d", min(c.rounds, r.Round+2), c.rounds)
		c.at += strings.TrimPrefix(accuracyOf(r), ",")
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
			time.Since(c.began).Round(100*time.Millisecond), left(c.all.began, c.all.units, c.all.total))
	}
	c.all.draw()
}
