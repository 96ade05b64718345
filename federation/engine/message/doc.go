// Package message is what the server and its clients say to each other: instructions, replies, their tensors, and the
// checks that each side makes of what the other sent.
package message
