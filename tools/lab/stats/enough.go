package stats

// MinPairs is the number of independent pairs below which no interval, effect size or p value is given, and no method
// is marked as different from another. Of n pairs that do not differ in truth, all have one sign with probability
// 2/2^n, which is 0.0625 for five: the signed-rank test cannot reach 0.05, and the range of all five differences, which
// no resample leaves, is less than a 95 % interval of their median.
//
// Pairs are independent where they come from different seeds or tasks. Clients of one run are not: they share its seed
// and its server's parameters.
const MinPairs = 6

// Enough reports whether so many independent pairs carry an interval, an effect size or a test.
func Enough(pairs int) bool { return pairs >= MinPairs }
