// Command probes measures what uploads of prompts give away to a server that follows the protocol and is curious:
// whether an image was among a client's training examples, and what the features of its images are. It prints the
// tables of docs/robustness.md.
package main
