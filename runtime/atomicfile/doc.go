// Package atomicfile replaces files and folders so that neither a crash nor a full disk leaves an incomplete one. It
// imports nothing of this module.
package atomicfile
