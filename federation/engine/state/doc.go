// Package state keeps what a run needs to continue after a crash: client states, checkpoints with checksums, and the
// learned prompts (prompts.safetensors).
package state
