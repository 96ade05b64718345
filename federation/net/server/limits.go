package server

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/net/wire"
	"promptfed/runtime/tensor"
)

// Default limits of a client's uploads. docs/distributed.md has measurements of honest clients.
const (
	// An upload weighs at most maxMedian times the median of the examples of all clients that joined, and with three or
	// more clients at most maxOthers times the examples of all others together; McMahan et al. (Learning Differentially
	// Private Recurrent Language Models, ICLR 2018, section 2) cap weights in this way. Beyond maxClaim times the
	// median it is refused.
	maxMedian, maxOthers, maxClaim = 20, 2, 1000
	// Largest number in an upload or a measurement.
	maxValue = 1e6
	// Smallest number of clients, or rounds, with a meaningful median.
	minSamples = 3
	// Number of rounds that are remembered.
	maxPast = 20
)

// norms holds the norms of updates and extras in the last rounds: for each kind the median over a round's accepted
// uploads, and the learning rate.
type norms map[string][]pastNorm

type pastNorm struct {
	Norm float64 `json:"norm"`
	Rate float64 `json:"rate"`
}

// extrasOf returns the extras that a reply may have, and whether they can be checked, which is impossible under secure
// aggregation.
func (h *Server) extrasOf(instruction message.Instruction, client int) (declared []method.Extra, checked bool) {
	declared, ok := instruction.Extras(h.set.Method, h.taskOf(client))
	return declared, ok && instruction.Guarded == nil
}

// checkReply refuses a reply by its own content: undeclared extras, more examples than the client joined with, numbers
// beyond all bounds, or an update beyond a fixed bound.
func (h *Server) checkReply(instruction message.Instruction, reply message.Reply) error {
	declared, checked := h.extrasOf(instruction, reply.Client)
	if !checked {
		return nil
	}

	examples := h.members.client(reply.Client).Examples
	if !h.set.asksExamples() {
		examples = wire.MaxExamples
	} else if reply.Upload.N > examples {
		return fmt.Errorf("it counts %d examples, but the client joined with %d", reply.Upload.N, examples)
	}

	err := message.CheckExtras(declared, reply.Upload.Extra, examples)
	if err != nil || h.set.MaxNorm < 0 {
		return err
	}

	_, sizes := splitCounts(reply.Upload.Extra, declared)
	if h.set.MaxNorm == 0 || instruction.Kind == message.Compute {
		maps.Copy(sizes, reply.Upload.Shared)
	} else if d := message.UpdateNorm(instruction.Shared, reply.Upload.Shared); !(d <= h.set.MaxNorm) {
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

// shown returns a number of a client's upload for a refusal.
func (h *Server) shown(v float64) string {
	if h.set.Privacy.Clients {
		return "(not shown: differential privacy)"
	}
	return fmt.Sprintf("%.4g", v)
}

// applyLimits compares the replies of a round. It refuses outliers and reduces the weights of uploads with too many
// examples. The result depends only on the replies, the clients that joined and the rounds before. Under client-level
// differential privacy no upload is judged by others: the method bounds each.
func (h *Server) applyLimits(instruction message.Instruction, replies []message.Reply) ([]message.Reply, error) {
	refused := map[int]error{}
	if instruction.Kind.Tests() {
		refuseTests(replies, refused)
	} else if !h.set.Privacy.Clients {
		h.limitNorms(instruction, replies, refused)
		h.limitExamples(instruction, replies, refused)
	}

	out := replies[:0]
	for _, r := range replies {
		err := refused[r.Client]
		if err == nil {
			out = append(out, r)
			continue
		}
		h.Rejected(instruction.Round, r.Client, err)
		h.mail.trained(r.Client, "")
		if h.set.Quorum == 1 && h.set.KeepQuorum {
			return nil, fmt.Errorf("round %d: client %d: its reply is refused, and --quorum 1 needs all: %w",
				instruction.Round+1, r.Client, err)
		}
	}

	return out, nil
}

// limitExamples reduces the weight of uploads of clients with unlikely many examples, or refuses them. It refuses
// answers to statistics, in which every class has its own weight.
func (h *Server) limitExamples(instruction message.Instruction, replies []message.Reply, refused map[int]error) {
	if h.set.MaxExamples < 0 || h.set.MaxExamples == 0 && !h.set.asksExamples() {
		return
	}

	clients := h.members.roster().clients
	var claims []int
	for _, m := range clients {
		if m.joined {
			claims = append(claims, m.Examples)
		}
	}

	slices.Sort(claims)
	for i := range replies {
		reply, most := &replies[i], h.set.MaxExamples
		declared, checked := h.extrasOf(instruction, reply.Client)
		if !checked || refused[reply.Client] != nil {
			continue
		}

		if most == 0 {
			var err error
			if most, err = maxWeight(claims, clients[reply.Client].Examples); err != nil {
				refused[reply.Client] = err
				continue
			}
		}

		counted, _ := splitCounts(reply.Upload.Extra, declared)
		if instruction.Kind == message.Compute {
			for _, name := range counted.Names() {
				if n := sumOf(counted[name]); n > float64(most) {
					refused[reply.Client] = fmt.Errorf("it counts %.10g examples; at most %d are accepted "+
						"(--max-examples)", n, most)
				}
			}
			continue
		}

		claimed, before := reply.Upload.N, h.cap(reply.Client, reply.Upload.N, most)
		if claimed <= most {
			continue
		}

		counted.Scale(float64(most) / float64(claimed))
		reply.Upload.N = most
		if before != most {
			h.set.Log.Warn("an upload claims more examples than its weight is capped at (--max-examples)", "round",
				instruction.Round+1, "client", reply.Client, "claimed", claimed, "counted", most)
		}
	}
}

// cap records the weight of a client's upload, and returns the reduced weight of the one before, 0 if it was whole.
func (h *Server) cap(client, claimed, most int) (before int) {
	h.counts.change(func(c *counts) {
		k := &c.clients[client]
		if before, k.counted = k.counted, 0; claimed > most {
			k.counted = most
			c.limited.Cut = append(c.limited.Cut, message.CappedUpload{Client: client, Claimed: claimed, Counted: most})
		}
	})

	return before
}

// maxWeight returns the largest weight of a client that joined with claimed examples, given the sorted claims of all
// that joined, or an error if the claim is not credible.
func maxWeight(claims []int, claimed int) (int, error) {
	if len(claims) == 0 { // all left while they answered
		return claimed, nil
	}

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

// limitNorms refuses uploads whose update of the shared parameters, or whose extras of one kind, have a much larger
// norm than usual. The usual norm is the largest of three medians, each over three values or more: over these uploads,
// over those of the rounds before, and over the latter in proportion to the learning rate. An update with a norm above
// message.MaxUpdateNorm is refused in any case.
func (h *Server) limitNorms(instruction message.Instruction, replies []message.Reply, refused map[int]error) {
	if h.set.MaxNorm < 0 {
		return
	}

	rate := 1.0
	if h.set.Rate != nil {
		rate = h.set.Rate(instruction.Round)
	}

	lengths := map[string]map[int]float64{} // by kind and client
	for _, reply := range replies {
		declared, checked := h.extrasOf(instruction, reply.Client)
		if !checked {
			continue
		}
		for kind, v := range measure(instruction, reply, declared) {
			if v == 0 { // no update, which is no measure for others
				continue
			}
			if lengths[kind] == nil {
				lengths[kind] = map[int]float64{}
			}
			lengths[kind][reply.Client] = v
		}
	}

	if h.norms == nil {
		h.norms = norms{}
	}

	kinds := slices.Sorted(maps.Keys(lengths))
	for _, kind := range kinds {
		measured := lengths[kind]
		if kind == movesKind && h.set.MaxNorm > 0 {
			continue
		}

		usual := h.norms.typical(kind, measured, rate)
		most, than := math.Inf(1), "the usual"
		if usual > 0 {
			most = message.MaxNormRatio * usual
		}

		if own := message.MaxUpdateNorm(instruction.Shared); kind == movesKind && own < most {
			most, than = own, "that of the parameters"
		}

		for client, v := range measured {
			if !(v <= most) && refused[client] == nil {
				refused[client] = fmt.Errorf("%s of %.4g: at most %.4g is accepted, %d times %s (--max-norm)", kind, v,
					most, message.MaxNormRatio, than)
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
			all := append(h.norms[kind], pastNorm{lowerMedian(good), rate})
			h.norms[kind] = all[max(0, len(all)-maxPast):]
		}
	}
}

// movesKind is the kind of the norms of updates.
const movesKind = "an update with a norm"

// measure returns the norms of an upload: of its update, and of its extras by the folder of their names, without
// counts.
func measure(instruction message.Instruction, r message.Reply, declared []method.Extra) map[string]float64 {
	out := map[string]float64{}
	if instruction.Kind == message.Train && len(r.Upload.Shared) > 0 {
		out[movesKind] = message.UpdateNorm(instruction.Shared, r.Upload.Shared)
	}

	_, other := splitCounts(r.Upload.Extra, declared)
	for _, name := range other.Names() {
		kind := name
		if dir := path.Dir(name); dir != "." {
			kind = dir
		}
		if kind = "a norm of " + kind; instruction.Kind == message.Compute {
			kind += " in the statistic " + instruction.Statistic
		}
		out[kind] = math.Hypot(out[kind], other[name].Norm())
	}

	return out
}

// typical returns the usual norm of a kind, given those of this round; 0 if it is unknown.
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

// refuseTests refuses test results with unlikely many examples, which would dominate means over examples.
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

// splitCounts separates extras that hold counts from the others.
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

// sumOf returns the sum of a tensor's numbers.
func sumOf(t *tensor.Tensor) float64 {
	sum := 0.0
	for _, v := range t.Data {
		sum += float64(v)
	}
	return sum
}

// lowerMedian returns the lower median.
func lowerMedian(v []float64) float64 {
	return slices.Sorted(slices.Values(v))[(len(v)-1)/2]
}

// LongestMove returns the largest accepted norm of an update since the server started, relative to the usual one.
func (h *Server) LongestMove() float64 { return h.longest[movesKind] }
