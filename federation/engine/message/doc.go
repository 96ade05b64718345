// Package message defines the messages between the server and its clients: instructions, replies, their tensors, the
// encoding of these as safetensors, and the checks of each side on what it receives. It imports no transport.
package message
