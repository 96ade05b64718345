// Package projection holds the projectors that FedPHA (ICML 2025, Eq. 8-10 and Algorithm 1), SDFed (arXiv 2602.08590,
// Definition 1 and Eq. 9) and FedPR (CVPR 2023) build from the singular value decomposition of the global prompt, and
// their derivatives. Decompositions come from gonum; everything inside is float64 and independent of the number of
// threads.
package projection
