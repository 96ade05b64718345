// Package configs reads configuration files: flags override the environment (PROMPTFED_TRAIN_LR=...), the environment
// overrides the file, and the file overrides the defaults. Unknown keys are errors. A sweep file is a configuration
// with a grid of changes. Only this package imports viper; it may import federation and the layers below.
package configs
