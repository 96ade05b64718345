package ort

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"promptfed/runtime/filestamp"
	"promptfed/runtime/onnx"
)

// graphCache holds the compiled graphs of a process: those of open sessions of NewCachedSession, and those that were
// closed last.
var graphCache = struct {
	sync.Mutex
	graphs map[[sha256.Size]byte]*cachedGraph
	idle   list.List // of *cachedGraph without open sessions, the one that was closed last in front
	counts CacheCounts
}{graphs: map[[sha256.Size]byte]*cachedGraph{}}

// maxIdleBytes bounds the memory of graphs without open sessions: the text towers of four backbones of ViT-B/16's size
// with their graphs, or 3,000 graphs of toys.
var maxIdleBytes = 1536 << 20

// graphBytes is the memory of a small graph beside its constants, measured with 250 graphs.
const graphBytes = 512 << 10

// CacheCounts says what the cache of compiled graphs has done in this process.
type CacheCounts struct {
	Compiled  int `json:"compiled"`   // sessions of NewCachedSession with a graph of their own
	Reused    int `json:"reused"`     // sessions that share the graph of another one
	Dropped   int `json:"dropped"`    // graphs without open sessions that gave place to others
	IdleBytes int `json:"idle_bytes"` // of graphs without open sessions, estimated

	Captured int    `json:"captured,omitempty"`        // graphs of fixed sizes that a device replays
	Refused  int    `json:"capture_refused,omitempty"` // graphs of fixed sizes that a device runs operator by operator
	Why      string `json:"why_refused,omitempty"`     // the reason for the first of these
	Kernels  string `json:"kernels_refused,omitempty"` // why a GPU runs none of promptfed's own operators
}

// Refusal says why a device runs graphs of fixed sizes operator by operator, or without promptfed's own operators; ""
// if it does neither.
func (c CacheCounts) Refusal() string {
	var why []string
	if c.Refused > 0 {
		why = append(why, fmt.Sprintf("%d of %d graphs run operator by operator on the device, because it could not "+
			"capture them: %s", c.Refused, c.Captured+c.Refused, c.Why))
	}

	if c.Kernels != "" {
		why = append(why, "steps take longer without promptfed's own operators for GPUs: "+c.Kernels)
	}

	return strings.Join(why, "; ")
}

// noteKernels notes why a GPU runs none of promptfed's own operators.
func noteKernels(why error) {
	graphCache.Lock()
	defer graphCache.Unlock()
	graphCache.counts.Kernels = cmp.Or(graphCache.counts.Kernels, plain(why))
}

// noteCapture counts a graph of fixed sizes; err is the reason if it is not captured.
func noteCapture(err error) {
	graphCache.Lock()
	defer graphCache.Unlock()
	c := &graphCache.counts
	if err == nil {
		c.Captured++
		return
	}

	if c.Refused++; c.Refused == 1 {
		c.Why = plain(err)
	}
}

// Cached returns the counts of the cache of compiled graphs.
func Cached() CacheCounts {
	graphCache.Lock()
	defer graphCache.Unlock()
	c := graphCache.counts
	c.IdleBytes = idleBytes()
	return c
}

// cachedGraph is a compiled graph that equal sessions share.
type cachedGraph struct {
	key     [sha256.Size]byte
	compile func() ([]*replica, error) // once
	bytes   int                        // of memory, estimated; if above maxIdleBytes, it is freed with its last session
	weights string                     // names the weights that it shares with other graphs
	shared  int                        // bytes of these weights
	users   int
	at      *list.Element // in graphCache.idle
}

// NewCachedSession is NewSession for a graph that callers open again and again: sessions share one compiled graph if
// they have the same model, options and files of weights. Graphs stay compiled after Close within a bound of memory, so
// that the next run of a program with many runs finds them.
func NewCachedSession(model *onnx.ModelProto, o Options) (*Session, error) {
	return openSession(model, o, true)
}

// key identifies everything that the compiled program depends on. ok is false if it cannot be shared: profiles are
// complete when their session closes, and a file that was written just now may be written again with the same stamp.
func (p *program) key(options Options) (key [sha256.Size]byte, ok bool) {
	if options.Profile != "" {
		return key, false
	}

	stamps, ok := p.stamps()
	if !ok {
		return key, false
	}

	h := sha256.New()
	fmt.Fprintf(h, "%#v %q %q %q\n%s", options, p.native, p.nativeOutputs, p.weights, stamps)
	h.Write(p.model)
	return [sha256.Size]byte(h.Sum(nil)), true
}

// stamps returns the stamps of the files of weights, and whether a file that is written later gets another one.
func (p *program) stamps() (all string, settled bool) {
	settled = true
	for _, name := range p.files {
		st, err := os.Stat(filepath.Join(p.weights, filepath.FromSlash(name)))
		if err != nil {
			return "", false
		}
		settled = settled && filestamp.Settled(st, time.Now())
		all += fmt.Sprintf("%q %s\n", name, filestamp.Of(st))
	}

	return all, settled
}

// idleBytes estimates the memory of the compiled program: graph and constants.
func (p *program) idleBytes(o Options) int {
	if o.onDevice() || o.IntraThreads > 1 { // a device's memory and threads are for open sessions
		return math.MaxInt
	}
	if runtime.GOOS == "windows" && len(p.files) > 0 { // nobody can remove a mapped file there
		return math.MaxInt
	}
	return graphBytes + 2*len(p.model)
}

// acquire returns the graph of a program for one more session, which calls release or fail once; nil if sessions cannot
// share it.
func acquire(program *program, options Options, compile func() ([]*replica, error)) *cachedGraph {
	key, shared := program.key(options)
	graphCache.Lock()
	defer graphCache.Unlock()
	if !shared {
		graphCache.counts.Compiled++
		return nil
	}

	graph := graphCache.graphs[key]
	if graph == nil {
		graph = &cachedGraph{key: key, bytes: program.idleBytes(options), compile: sync.OnceValues(compile)}
		for _, w := range program.external {
			graph.shared += int(w.at.Length)
		}
		if graph.shared > 0 {
			graph.weights = fmt.Sprintf("%q %v", program.weights, options.Prepack)
		}
		graphCache.graphs[key] = graph
		graphCache.counts.Compiled++
	} else {
		graphCache.counts.Reused++
	}

	if graph.users++; graph.at != nil {
		graphCache.idle.Remove(graph.at)
		graph.at = nil
	}

	return graph
}

// fail ends the use of a graph that was not compiled. A later session tries again.
func (g *cachedGraph) fail() {
	if g == nil {
		return
	}

	graphCache.Lock()
	defer graphCache.Unlock()
	if graphCache.graphs[g.key] == g {
		delete(graphCache.graphs, g.key)
	}
}

// release ends the use of a graph, and returns what has to be closed.
func (g *cachedGraph) release() (unused []*replica) {
	graphCache.Lock()
	defer graphCache.Unlock()
	if g.users--; g.users > 0 {
		return nil
	}

	if g.bytes > maxIdleBytes {
		return g.drop()
	}

	g.at = graphCache.idle.PushFront(g)
	for idleBytes() > maxIdleBytes {
		unused = append(unused, dropLast()...)
	}

	return unused
}

// idleBytes estimates the memory of the graphs without open sessions: their own, and of shared weights once the most
// that any of them read. The caller holds the lock.
func idleBytes() (n int) {
	weights := map[string]int{}
	for at := graphCache.idle.Front(); at != nil; at = at.Next() {
		graph := at.Value.(*cachedGraph)
		n += graph.bytes
		weights[graph.weights] = max(weights[graph.weights], graph.shared)
	}

	for _, bytes := range weights {
		n += bytes
	}

	return n
}

// dropLast drops the graph that was closed first. The caller holds the lock.
func dropLast() []*replica {
	last := graphCache.idle.Remove(graphCache.idle.Back()).(*cachedGraph)
	graphCache.counts.Dropped++
	return last.drop()
}

// drop takes a graph without users out of the table and returns what has to be closed. The caller holds the lock.
func (g *cachedGraph) drop() []*replica {
	delete(graphCache.graphs, g.key)
	all, _ := g.compile()
	return all
}
