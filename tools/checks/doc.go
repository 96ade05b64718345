// Package checks checks the structure of the repository: imports between layers, sizes of files and folders, and
// tracked files. A rule returns one line for each violation; the tests of the package apply the rules to the
// repository.
package checks
