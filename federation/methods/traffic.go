package methods

// Sizes are those that formulas of communication are in: m, d, l, p and the discriminator's d2 of FedAPPR's table S6,
// whose d1 is d.
type Sizes struct{ Tokens, Width, Classes, Dim, Hidden int }

// traffic is what the papers say a client sends and gets in a round, in numbers.
type traffic struct {
	formula string
	numbers func(Sizes) int
	over    string // the carrier that a wrapper's formula is for; empty is promptfl
}

// Communication of FedAPPR's table S6. Methods that it does not have carry no formula.
var (
	unstated      = traffic{}
	promptTraffic = traffic{formula: "m d 2", numbers: func(s Sizes) int { return 2 * s.Tokens * s.Width }}
	apprTraffic   = traffic{formula: "m d 2 + d1 d2 + d2",
		numbers: func(s Sizes) int { return 2*s.Tokens*s.Width + (s.Width+1)*s.Hidden }}
	logitTraffic = traffic{formula: "l l 2", numbers: func(s Sizes) int { return 2 * s.Classes * s.Classes }}
	protoTraffic = traffic{formula: "p l 2", numbers: func(s Sizes) int { return 2 * s.Dim * s.Classes }, over: "coop"}
)

// Numbers gives the formula of a method's communication in one round of one client, both ways, and its value; "" and 0
// where the papers give none.
func (e Entry) Numbers(s Sizes) (formula string, numbers int) {
	if e.traffic.numbers == nil {
		return "", 0
	}
	return e.traffic.formula, e.traffic.numbers(s)
}

// Over is the carrier that a wrapper is listed with.
func (e Entry) Over() string {
	if e.traffic.over != "" {
		return e.traffic.over
	}
	return "promptfl"
}
