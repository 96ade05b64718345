// Package samples shows test images of a finished run with the predictions of its classifiers, on a machine that has
// the images. It may import federation/experiment, configs and tools/lab/results.
package samples
