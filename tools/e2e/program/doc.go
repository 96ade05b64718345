// Package program holds tests that start promptfed as a user does: every command on every shipped configuration, what
// the pages of docs/ tell a user to type, and promises about bytes, interruptions and messages. They may import every
// layer.
package program
