package stats

// MinPairs is the smallest number of independent pairs for an interval, an effect size, a p value, or a claim that
// methods differ. With n pairs without a true difference, all have one sign with probability 2/2^n, which is 0.0625 for
// five: the signed-rank test cannot reach 0.05. No resample leaves the range of all five differences, and this range is
// less than a 95 % interval of their median.
//
// Pairs are independent if they come from different seeds or tasks. Clients of one run are dependent, because they
// share the seed and the server's parameters.
const MinPairs = 6

// EnoughPairs reports whether the number of independent pairs reaches MinPairs.
func EnoughPairs(pairs int) bool { return pairs >= MinPairs }
