// Package configtags reads the configuration keys of a struct: its fields with a tag "config" and a help text. It
// checks their values by the tag "in", and imports nothing of promptfed.
package configtags
