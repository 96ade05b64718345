// Package tensor holds dense arrays by name, from which parameters, messages, checkpoints, and inputs and outputs of
// graphs are made. It imports nothing of this module.
package tensor
