package ort

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	_ "promptfed/runtime/ops" // graph.FixSizes reads graphs
	"promptfed/runtime/tensor"
)

// maxSizes bounds the sizes for which a session has a graph of their own, and rarely is the number of runs without a
// size after which its graph gives place to that of another size.
const (
	maxSizes = 16
	rarely   = 1000
)

// OnFixed is called with each graph of fixed sizes, unless it is nil. Only tests set it, before the first session.
var OnFixed func(*onnx.ModelProto)

// fixedSizes holds the graphs of a session for some sizes of its inputs. Sizes that come once, and those above
// maxSizes, take the session's own graph.
type fixedSizes struct {
	model   *onnx.ModelProto
	options Options
	weights string // stamps of its files

	mu     sync.Mutex
	sizes  map[string]*sizedGraph
	runs   int   // of the session
	full   int   // sizes that have a graph
	closed bool  // no size gets a graph any more
	failed error // of freeing graphs
}

// sizedGraph is the graph for some sizes: one compiled graph for each run that goes on at the same time, up to lanes.
type sizedGraph struct {
	lanes   []*lane
	last    int  // number of the session's run that took these sizes last
	refused bool // it could not be compiled
}

// lane is one compiled graph, whose captured runs follow each other.
type lane struct {
	*Session
	alone bool // its runs follow each other, because they are captured
	runs  int  // in flight
}

// mostLanes is the number of captured graphs of equal sizes that run side by side on a device: while one computes, the
// inputs of another one are copied.
const mostLanes = 2

// forSizes returns the session for the sizes of inputs that were checked. The caller calls done after the run.
func (s *Session) forSizes(inputs tensor.Map, held Values) (sized *Session, done func()) {
	fixedSizes := s.fixed
	if fixedSizes == nil {
		return s, func() {}
	}

	shapes := make([][]int, len(s.inputs))
	for i, in := range s.inputs {
		if v := held[in.Name]; v != nil {
			shapes[i] = v.tensor.Shape
		} else {
			shapes[i] = inputs[in.Name].Shape
		}
	}

	fixedSizes.mu.Lock()
	defer fixedSizes.mu.Unlock()
	l := fixedSizes.lane(s.program, shapes)
	if l == nil {
		return s, func() {}
	}

	l.runs++
	return l.Session, func() {
		fixedSizes.mu.Lock()
		defer fixedSizes.mu.Unlock()
		l.runs--
	}
}

// lane returns the compiled graph for shapes of a program's inputs, nil where the session's own graph has to do. The
// caller holds f.mu.
func (f *fixedSizes) lane(program *program, shapes [][]int) *lane {
	if f.closed {
		return nil
	}

	f.runs++
	key := fmt.Sprint(shapes)
	sized := f.sizes[key]
	if sized == nil {
		if len(f.sizes) < 64*maxSizes {
			f.sizes[key] = &sizedGraph{last: f.runs}
		}
		return nil
	}

	if sized.last = f.runs; sized.refused {
		return nil
	}

	var least *lane
	if len(sized.lanes) > 0 {
		least = slices.MinFunc(sized.lanes, func(a, b *lane) int { return a.runs - b.runs })
	}

	switch {
	case least != nil && (least.runs == 0 || len(sized.lanes) == mostLanes || !least.alone):
		return least
	case least == nil && f.full == maxSizes && !f.evict():
		return nil
	}

	fixed, err := f.compile(program, shapes, len(sized.lanes))
	switch {
	case err != nil && least == nil:
		noteCapture(err)
		sized.refused = true
		return nil
	case err != nil: // for example, the device's memory is full
		return least
	case least == nil:
		f.full++
	}

	sized.lanes = append(sized.lanes, &lane{Session: fixed, alone: fixed.replicas[0].captured != nil})
	return sized.lanes[len(sized.lanes)-1]
}

// compile returns the session of a lane for shapes of a program's inputs. It fails if graph.FixSizes does not know an
// operator, and if files of weights changed, since the session's own graph has those of before.
func (f *fixedSizes) compile(program *program, shapes [][]int, lane int) (*Session, error) {
	if now, _ := program.stamps(); now != f.weights {
		return nil, program.errorf("its files of weights changed after it was opened")
	}

	sizes := map[string][]int{}
	for i, in := range program.inputs {
		sizes[in.Name] = shapes[i]
	}

	model, err := graph.FixSizes(f.model, sizes)
	if err != nil {
		return nil, program.errorf("for inputs of sizes %v: %w", sizes, err)
	}

	if OnFixed != nil {
		OnFixed(model)
	}

	o := f.options
	o.lane = lane
	return NewCachedSession(model, o)
}

// evict frees the graph of the sizes that no run took for longest, and reports whether it did: if that is rarely, and
// none of its runs goes on.
func (f *fixedSizes) evict() bool {
	var oldest *sizedGraph
	for _, g := range f.sizes {
		if len(g.lanes) > 0 && (oldest == nil || g.last < oldest.last) {
			oldest = g
		}
	}

	if f.runs-oldest.last < rarely || slices.ContainsFunc(oldest.lanes, func(l *lane) bool { return l.runs > 0 }) {
		return false
	}

	for _, l := range oldest.lanes {
		_, err := l.free()
		f.failed = errors.Join(f.failed, err)
	}

	oldest.lanes, f.full = nil, f.full-1
	return true
}

// close returns the sessions of all sizes, of which no further one is made, and what failed in freeing others.
func (f *fixedSizes) close() (all []*Session, err error) {
	if f == nil {
		return nil, nil
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, g := range f.sizes {
		for _, l := range g.lanes {
			all = append(all, l.Session)
		}
	}

	return all, f.failed
}
