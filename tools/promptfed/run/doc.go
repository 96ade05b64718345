// Package run has the commands that train in this process or coordinate workers: init, run, sweep,
// launch, programs and trace.
// It may import federation, configs and the packages of tools/promptfed that it uses, and nothing of tools/lab.
package run
