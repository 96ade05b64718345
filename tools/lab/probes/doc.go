// Command probes measures how much uploaded prompts reveal to an honest but curious server: whether an image was among
// a client's training examples, and the features of the client's images. It prints the tables of docs/robustness.md.
package main
