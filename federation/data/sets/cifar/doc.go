// Package cifar reads CIFAR-10 and CIFAR-100: the binary and the Python release, and image folders made from them. It
// may import federation/data, its formats, and the packages source and folder.
package cifar
