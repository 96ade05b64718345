// Package prompts has the learnable prompts that methods share, as structs of options to embed: text prompts, prompts
// that begin at words, prompts of the image tower, deep prompts of both towers, and hand-written templates.
package prompts
