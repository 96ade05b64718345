// Package folder reads images in folders of classes, with or without folders of splits and domains. It may import
// federation/data and the package source.
package folder
