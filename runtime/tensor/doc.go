// Package tensor holds dense arrays by name, from which parameters, messages, checkpoints, and inputs and outputs of
// graphs are made. Loops over many numbers are in C where the processor has AVX2. It imports nothing of this module.
package tensor
