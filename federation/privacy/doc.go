// Package privacy computes what client-level differential privacy costs: the Rényi divergences of one noisy round,
// their sum over rounds, and the (epsilon, delta) that follows from it. It knows nothing of methods or clients.
//
// Two ways of drawing a round's clients are covered, each with the neighbours it has a proof for:
//   - Poisson: each client is drawn by itself. Neighbours differ by one client more or less, which moves the sum of
//     clipped updates by at most the clip norm C.
//   - fixed size: m of n clients, drawn without replacement. Neighbours differ in the data of one client, whose clipped
//     update becomes any other, which moves the sum by at most 2C. With m = n nobody is drawn, and the bound is the
//     Gaussian mechanism's.
//
// The two epsilons are of different neighbours and do not compare directly.
package privacy
