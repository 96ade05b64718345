package method

// RoundCount is how many rounds an experiment has. It remembers that somebody asked: what a method computes with it
// holds for this number of rounds only.
type RoundCount struct {
	total int
	asked bool
}

// Rounds is a count of rounds that nobody asked for yet.
func Rounds(total int) RoundCount { return RoundCount{total: total} }

// Total is the number of rounds.
func (c *RoundCount) Total() int {
	c.asked = true
	return c.total
}

// Asked tells whether Total was called.
func (c *RoundCount) Asked() bool { return c.asked }
