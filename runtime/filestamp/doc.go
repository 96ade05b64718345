// Package filestamp identifies a file by its path without links, and its content by its metadata, to find out without
// reading whether the file has changed. It imports nothing of this module.
package filestamp
