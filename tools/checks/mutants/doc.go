// Command mutants plants small faults into a package, one at a time, and runs the package's own tests on each. A fault
// that no test finds is printed. The faults are drawn from all non-test code of the package by a seed. The tree stays
// as it is: the go command reads each fault from an overlay.
//
// go-gremlins/gremlins plants all faults of a module in copies of it; it draws no sample and has no seed.
package main
