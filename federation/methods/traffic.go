package methods

// Sizes are those that formulas of communication are in: m, d, l, p and the discriminator's d2 of FedAPPR's table S6,
// whose d1 is d.
type Sizes struct{ Tokens, Width, Classes, Dim, Hidden int }

// Traffic is what papers say a client sends and gets in a round, both ways together, in numbers.
type Traffic struct {
	Formula string
	Numbers func(Sizes) int
	Over    string // the base method that a wrapper's formula is for; empty is promptfl
}

// promptTraffic is one prompt each way (FedAPPR's table S6).
var promptTraffic = Traffic{Formula: "m d 2", Numbers: func(s Sizes) int { return 2 * s.Tokens * s.Width }}

// Numbers gives the formula of a method's communication in one round of one client, both ways, and its value; "" and 0
// where the papers give none.
func (d Def) Numbers(s Sizes) (formula string, numbers int) {
	if d.Traffic.Numbers == nil {
		return "", 0
	}
	return d.Traffic.Formula, d.Traffic.Numbers(s)
}

// Over is the base method that a wrapper is listed with.
func (d Def) Over() string {
	if d.Traffic.Over != "" {
		return d.Traffic.Over
	}
	return promptFLDef.Name
}
