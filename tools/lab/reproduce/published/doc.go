// Package published is the program reproduce, which runs the published zero-shot accuracies of CLIP and one table of
// each paper as far as this machine has weights and images, lists what is missing with where it comes from and how long
// the tables take, and writes the published numbers, its own, their differences and the fingerprint of the runs into
// one file.
package published
