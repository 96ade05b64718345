package ort

import (
	"errors"
	"fmt"
	"strings"
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

	mu     sync.Mutex
	sizes  map[string]*sizedGraph
	runs   int  // of the session
	full   int  // sizes that have a graph
	closed bool // no size gets a graph any more
}

// sizedGraph is the graph for some sizes: one compiled graph for each run that goes on at the same time, up to lanes.
type sizedGraph struct {
	lanes   []*lane
	last    int  // number of the session's run that took these sizes last
	refused bool // graph.FixSizes does not know the graph
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

// forSizes returns the session for the sizes of some inputs. The caller calls done after the run.
func (s *Session) forSizes(inputs tensor.Map, held Values) (sized *Session, done func(), err error) {
	f := s.fixed
	if f == nil {
		return s, func() {}, nil
	}
	shapes := map[string][]int{}
	var key strings.Builder
	for _, in := range s.inputs {
		t := inputs[in.Name]
		if v := held[in.Name]; v != nil {
			t = v.tensor
		}
		if t == nil || len(t.Shape) != len(in.Shape) {
			return s, func() {}, nil // its check of the inputs says why
		}
		shapes[in.Name] = t.Shape
		fmt.Fprint(&key, t.Shape)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	l, err := f.lane(key.String(), shapes)
	if err != nil {
		return nil, nil, s.errorf("for inputs of sizes %v: %w", shapes, err)
	}
	if l == nil {
		return s, func() {}, nil
	}
	l.runs++
	return l.Session, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		l.runs--
	}, nil
}

// lane returns the compiled graph for sizes, nil where the session's own graph has to do. The caller holds f.mu.
func (f *fixedSizes) lane(key string, shapes map[string][]int) (*lane, error) {
	if f.closed {
		return nil, nil
	}
	f.runs++
	g := f.sizes[key]
	if g == nil {
		if len(f.sizes) < 64*maxSizes {
			f.sizes[key] = &sizedGraph{last: f.runs}
		}
		return nil, nil
	}
	if g.last = f.runs; g.refused {
		return nil, nil
	}
	var least *lane
	for _, l := range g.lanes {
		if least == nil || l.runs < least.runs {
			least = l
		}
	}
	switch {
	case least != nil && (least.runs == 0 || len(g.lanes) == mostLanes || !least.alone):
		return least, nil
	case least == nil && f.full == maxSizes:
		if err := f.evict(); err != nil || f.full == maxSizes {
			return nil, err
		}
	}

	model, err := graph.FixSizes(f.model, shapes)
	if err != nil { // for example, an operator that is not ours
		noteCapture(err)
		g.refused = true
		return nil, nil
	}
	if OnFixed != nil {
		OnFixed(model)
	}
	o := f.options
	o.lane = len(g.lanes)
	fixed, err := NewCachedSession(model, o)
	switch {
	case err != nil && least != nil: // for example, the device's memory is full
		return least, nil
	case err != nil:
		return nil, err
	case least == nil:
		f.full++
	}
	g.lanes = append(g.lanes, &lane{Session: fixed, alone: fixed.replicas[0].captured != nil})
	return g.lanes[len(g.lanes)-1], nil
}

// evict frees the graph of the sizes that no run took for longest, if that is rarely.
func (f *fixedSizes) evict() error {
	var oldest *sizedGraph
	for _, g := range f.sizes {
		if len(g.lanes) > 0 && (oldest == nil || g.last < oldest.last) {
			oldest = g
		}
	}
	if f.runs-oldest.last < rarely {
		return nil
	}
	for _, l := range oldest.lanes {
		if l.runs > 0 {
			return nil
		}
	}
	var errs []error
	for _, l := range oldest.lanes {
		_, err := l.free()
		errs = append(errs, err)
	}
	oldest.lanes, f.full = nil, f.full-1
	return errors.Join(errs...)
}

// close returns the sessions of all sizes, of which no further one is made.
func (f *fixedSizes) close() (all []*Session) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, g := range f.sizes {
		for _, l := range g.lanes {
			all = append(all, l.Session)
		}
	}
	return all
}
