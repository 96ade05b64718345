// Package coop reads the data sets of CoOp (Zhou et al., IJCV 2022) by their split_zhou files or their original lists,
// and similar sets with one folder for each class and lists beside it: CUB-200 and Tiny-ImageNet. It may import
// federation/data, its formats and the package source.
package coop
