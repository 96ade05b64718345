// Package quickstart writes the configuration of a first comparison of methods on a folder of images: it detects the
// layout of the images and chooses a partition in which every client has enough of them. It may import federation and
// configs, and nothing of tools/lab.
package quickstart
