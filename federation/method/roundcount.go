package method

// RoundCount is the number of rounds of an experiment. It remembers whether it was read: what a method computes with it
// holds for this number of rounds only.
type RoundCount struct {
	total int
	asked bool
}

// Rounds returns a RoundCount that was not read.
func Rounds(total int) RoundCount { return RoundCount{total: total} }

// Total returns the number of rounds.
func (c *RoundCount) Total() int {
	c.asked = true
	return c.total
}

// Used reports whether Total was called.
func (c *RoundCount) Used() bool { return c.asked }
