package transport

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/transport/protocol"
	"promptfed/runtime/tensor"
)

// Limits of what one client can do to a round by what it uploads, where Settings say nothing else. What honest clients
// need of them was measured (docs/distributed.md).
const (
	// An upload weighs at most maxMedian times the median of the examples that clients joined with, and of three or
	// more clients maxOthers times what all others have together, as McMahan et al. (Learning Differentially Private
	// Recurrent Language Models, ICLR 2018, section 2) cap weights. Beyond maxClaim times the median it is refused.
	maxMedian, maxOthers, maxClaim = 20, 2, 1000
	// No number that is learned or measured is larger.
	maxValue = 1e6
	// So many clients, or rounds, can tell what is usual.
	minSamples = 3
	// So many rounds are remembered.
	maxPast = 20
)

// norms are what lengths of moves and of extras were in the last rounds: of each kind the median over the uploads that
// a round accepted, and the learning rate.
type norms map[string][]pastNorm

type pastNorm struct {
	Norm float64 `json:"norm"`
	Rate float64 `json:"rate"`
}

// extrasOf gives what a reply may have beside shared parameters, and whether what is in it can be checked at all: what
// is behind secure aggregation cannot.
func (h *Server) extrasOf(o message.Instruction, client int) (declared []method.Extra, checked bool) {
	h.Mu.Lock()
	task := h.clients[client].Participant.Task
	h.Mu.Unlock()
	declared, ok := o.Extras(h.set.Method, task)
	return declared, ok && o.Guarded == nil
}

// checkReply refuses a reply by what it says alone: extras that the method does not declare, more examples than the
// client joined with, numbers beyond all bounds, or a move beyond a fixed bound.
func (h *Server) checkReply(o message.Instruction, r message.Reply) error {
	declared, checked := h.extrasOf(o, r.Client)
	if !checked {
		return nil
	}
	h.Mu.Lock()
	examples := h.clients[r.Client].Examples
	h.Mu.Unlock()
	if !h.set.asksExamples() {
		examples = protocol.MaxExamples
	} else if r.Upload.N > examples {
		return fmt.Errorf("it counts %d examples, but the client joined with %d", r.Upload.N, examples)
	}
	err := message.CheckExtras(declared, r.Upload.Extra, examples)
	if err != nil || h.set.MaxNorm < 0 {
		return err
	}
	_, sizes := splitCounts(r.Upload.Extra, declared)
	if h.set.MaxNorm == 0 || o.Kind == message.Compute {
		maps.Copy(sizes, r.Upload.Shared)
	} else if d := message.Move(o.Shared, r.Upload.Shared); !(d <= h.set.MaxNorm) {
		return fmt.Errorf("it changed the parameters by the norm %s; at most %.4g is accepted (--max-norm)",
			h.shown(d), h.set.MaxNorm)
	}
	for _, name := range sizes.Names() {
		if v := sizes[name].MaxAbs(); !(v <= maxValue) {
			return fmt.Errorf("%s holds %s; numbers beyond %g are refused (--max-norm)", name, h.shown(v),
				float64(maxValue))
		}
	}
	return nil
}

// shown is a number of a client's upload as a refusal tells it.
func (h *Server) shown(v float64) string {
	if h.set.Privacy.Clients {
		return "(not shown: differential privacy)"
	}
	return fmt.Sprintf("%.4g", v)
}

// applyLimits looks at the replies of a round together. It refuses those that go beyond what is usual among all, and
// lets uploads with too many examples weigh less. That depends on nothing but the replies, the clients that joined and
// the rounds before. Where single clients are hidden, no upload is judged by others': the method bounds each.
func (h *Server) applyLimits(o message.Instruction, replies []message.Reply) ([]message.Reply, error) {
	refused := map[int]error{}
	if o.Kind.Tests() {
		refuseTests(replies, refused)
	} else if !h.set.Privacy.Clients {
		h.limitNorms(o, replies, refused)
		h.limitExamples(o, replies, refused)
	}
	out := replies[:0]
	for _, r := range replies {
		err := refused[r.Client]
		if err == nil {
			out = append(out, r)
			continue
		}
		h.Rejected(o.Round, r.Client, err)
		h.Mu.Lock()
		delete(h.trained, r.Client)
		h.Mu.Unlock()
		if h.set.Quorum == 1 {
			return nil, fmt.Errorf("round %d: client %d: its reply is refused, and --quorum 1 needs all: %w",
				o.Round+1, r.Client, err)
		}
	}
	return out, nil
}

// limitExamples lets uploads of clients that joined with unlikely many examples weigh less, or refuses them; answers to
// statistics, in which every class has a weight of its own, are refused.
func (h *Server) limitExamples(o message.Instruction, replies []message.Reply, refused map[int]error) {
	if h.set.MaxExamples < 0 || h.set.MaxExamples == 0 && !h.set.asksExamples() {
		return
	}
	h.Mu.Lock()
	var claims []int
	for _, k := range h.clients {
		if k.Participant.Joined {
			claims = append(claims, k.Examples)
		}
	}
	h.Mu.Unlock()
	slices.Sort(claims)
	for i := range replies {
		r := &replies[i]
		declared, checked := h.extrasOf(o, r.Client)
		if !checked || refused[r.Client] != nil {
			continue
		}
		h.Mu.Lock()
		k, most := &h.clients[r.Client], h.set.MaxExamples
		joined, before := k.Examples, k.counted
		h.Mu.Unlock()
		if most == 0 {
			var err error
			if most, err = maxWeight(claims, joined); err != nil {
				refused[r.Client] = err
				continue
			}
		}
		counts, _ := splitCounts(r.Upload.Extra, declared)
		if o.Kind == message.Compute {
			for _, name := range counts.Names() {
				if n := sumOf(counts[name]); n > float64(most) {
					refused[r.Client] = fmt.Errorf("it counts %.10g examples; at most %d are accepted (--max-examples)",
						n, most)
				}
			}
			continue
		}
		claimed := r.Upload.N
		h.Mu.Lock()
		if k.counted = 0; claimed > most {
			counts.Scale(float64(most) / float64(claimed))
			r.Upload.N, k.counted = most, most
			h.limited.Cut = append(h.limited.Cut, message.Cut{Client: r.Client, Claimed: claimed, Counted: most})
		}
		h.Mu.Unlock()
		if claimed > most && before != most {
			h.set.Log.Warn("an upload claims more examples than its weight is capped at (--max-examples)", "round",
				o.Round+1, "client", r.Client, "claimed", claimed, "counted", most)
		}
	}
}

// maxWeight is the largest weight of a client that joined with so many examples, among the sorted claims of all that
// joined; an error where the claim is beyond belief.
func maxWeight(claims []int, claimed int) (int, error) {
	middle, others := claims[(len(claims)-1)/2], -float64(claimed)
	for _, n := range claims {
		others += float64(n)
	}
	if len(claims) < minSamples {
		return maxMedian * middle, nil
	}
	if claimed > maxClaim*middle { // below 2^63, as claims are at most maxExamples
		return 0, fmt.Errorf("the client joined with %d examples; half of all clients have %d or fewer, and at most "+
			"%d times that is accepted (--max-examples)", claimed, middle, maxClaim)
	}
	return int(math.Min(float64(maxMedian*middle), maxOthers*others)), nil
}

// limitNorms refuses uploads whose move of the shared parameters, or whose extras of one kind, are much longer than
// usual: than the median over these uploads where they are three or more, over those of the rounds before where these
// are three or more, and over the same in proportion to the learning rate, whichever is the longest. Whatever others
// uploaded, a move is refused that is longer than message.MostMove.
func (h *Server) limitNorms(o message.Instruction, replies []message.Reply, refused map[int]error) {
	if h.set.MaxNorm < 0 {
		return
	}
	rate := 1.0
	if h.set.Rate != nil {
		rate = h.set.Rate(o.Round)
	}
	lengths := map[string]map[int]float64{} // by kind and client
	for _, r := range replies {
		declared, checked := h.extrasOf(o, r.Client)
		if !checked {
			continue
		}
		for kind, v := range measure(o, r, declared) {
			if v == 0 { // nothing to move or to tell, which says nothing of others
				continue
			}
			if lengths[kind] == nil {
				lengths[kind] = map[int]float64{}
			}
			lengths[kind][r.Client] = v
		}
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	kinds := slices.Sorted(maps.Keys(lengths))
	for _, kind := range kinds {
		of := lengths[kind]
		if kind == movesKind && h.set.MaxNorm > 0 {
			continue
		}
		usual := h.norms.typical(kind, of, rate)
		most, than := math.Inf(1), "the usual"
		if usual > 0 {
			most = message.MaxMoves * usual
		}
		if own := message.MostMove(o.Shared); kind == movesKind && own < most {
			most, than = own, "that of the parameters"
		}
		for client, v := range of {
			if !(v <= most) && refused[client] == nil {
				refused[client] = fmt.Errorf("%s of %.4g: at most %.4g is accepted, %d times %s (--max-norm)", kind, v,
					most, message.MaxMoves, than)
			} else if usual > 0 && refused[client] == nil {
				h.longest[kind] = max(h.longest[kind], v/usual)
			}
		}
	}
	for _, kind := range kinds {
		var good []float64
		for client, v := range lengths[kind] {
			if refused[client] == nil {
				good = append(good, v)
			}
		}
		if len(good) > 0 {
			h.norms = h.norms.with(kind, pastNorm{lowerMedian(good), rate})
		}
	}
}

// movesKind is the length of what an upload moved the shared parameters by.
const movesKind = "an update with a norm"

// measure gives the lengths of an upload: of its move, and of its extras by what their names begin with. Counts are
// not measured.
func measure(o message.Instruction, r message.Reply, declared []method.Extra) map[string]float64 {
	out := map[string]float64{}
	if o.Kind == message.Train && len(r.Upload.Shared) > 0 {
		out[movesKind] = message.Move(o.Shared, r.Upload.Shared)
	}
	_, other := splitCounts(r.Upload.Extra, declared)
	for _, name := range other.Names() {
		kind := name
		if dir := path.Dir(name); dir != "." {
			kind = dir
		}
		if kind = "a norm of " + kind; o.Kind == message.Compute {
			kind += " in the statistic " + o.Statistic
		}
		out[kind] = math.Hypot(out[kind], other[name].Norm())
	}
	return out
}

// typical is what lengths of a kind are, given those of this round; 0 where nobody can tell.
func (n norms) typical(kind string, now map[int]float64, rate float64) float64 {
	most := 0.0
	if len(now) >= minSamples {
		most = lowerMedian(slices.Collect(maps.Values(now)))
	}
	var before, perRate []float64
	for _, p := range n[kind] {
		before = append(before, p.Norm)
		if p.Rate > 0 {
			perRate = append(perRate, p.Norm/p.Rate)
		}
	}
	if len(before) >= minSamples {
		most = max(most, lowerMedian(before))
	}
	if len(perRate) >= minSamples {
		most = max(most, lowerMedian(perRate)*rate)
	}
	return most
}

// with is norms with one more of a kind.
func (n norms) with(kind string, p pastNorm) norms {
	out := norms{}
	maps.Copy(out, n)
	all := append(slices.Clone(out[kind]), p)
	out[kind] = all[max(0, len(all)-maxPast):]
	return out
}

// refuseTests refuses test results of unlikely many examples, which would be all that means over examples show.
func refuseTests(replies []message.Reply, refused map[int]error) {
	var sizes []float64
	for _, r := range replies {
		if r.Scores.Examples > 0 {
			sizes = append(sizes, float64(r.Scores.Examples))
		}
	}
	if len(sizes) < minSamples {
		return
	}
	most := maxClaim * lowerMedian(sizes)
	for _, r := range replies {
		if n := r.Scores.Examples; float64(n) > most {
			refused[r.Client] = fmt.Errorf("it was tested with %d examples; at most %.0f, %d times the usual, are "+
				"accepted", n, most, maxClaim)
		}
	}
}

// splitCounts splits extras into those that hold counts and the others.
func splitCounts(extra tensor.Map, declared []method.Extra) (counts, other tensor.Map) {
	counts, other = tensor.Map{}, tensor.Map{}
	for _, d := range declared {
		if t := extra[d.Name]; t != nil && d.Counts {
			counts[d.Name] = t
		} else if t != nil {
			other[d.Name] = t
		}
	}
	return counts, other
}

// sumOf is the sum of counts.
func sumOf(t *tensor.Tensor) float64 {
	sum := 0.0
	for _, v := range t.Data {
		sum += float64(v)
	}
	return sum
}

// lowerMedian is the lower median.
func lowerMedian(v []float64) float64 {
	return slices.Sorted(slices.Values(v))[(len(v)-1)/2]
}

// LongestMove is the length of the longest move that was taken since the server started, in what was usual then.
func (h *Server) LongestMove() float64 {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return h.longest[movesKind]
}

// Limited is what was refused and cut since it was asked last, by client.
func (h *Server) Limited() message.Limited {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	out := h.limited
	h.limited = message.Limited{}
	slices.SortStableFunc(out.Refused, func(a, b message.Refusal) int { return cmp.Compare(a.Client, b.Client) })
	slices.Sort(out.Unawaited)
	slices.SortStableFunc(out.Cut, func(a, b message.Cut) int { return cmp.Compare(a.Client, b.Client) })
	return out
}
