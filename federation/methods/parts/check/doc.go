// Package check checks options of methods: numbers within bounds, words of a list. It imports nothing of this module.
package check
