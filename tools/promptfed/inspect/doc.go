// Package inspect has the commands that prepare and check the inputs of a run: checkpoints, bundles and graphs, image
// sets, settings of other code, and the machine. It may import every layer and tools/lab.
package inspect
