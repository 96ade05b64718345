// Package privacy computes the cost of client-level differential privacy: the Rényi divergence of one noisy round, the
// sum over rounds, and the (epsilon, delta) that follows. It imports no method, client or engine.
//
// There is a bound for two ways to sample the clients of a round:
//   - Poisson: each client is drawn independently. Neighbouring data sets differ by one client more or less, which
//     changes the sum of clipped updates by at most the clip norm C.
//   - fixed size: m of n clients are drawn without replacement. Neighbouring data sets differ in the data of one
//     client. This replaces its clipped update and changes the sum by at most 2C. With m = n there is no sampling, and
//     the bound is that of the Gaussian mechanism.
//
// The two epsilons refer to different neighbours and cannot be compared directly.
package privacy
