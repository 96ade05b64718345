// Package aggregate has what methods do with a round's uploads: means in which clients count by examples or alike, and
// class means over clients.
package aggregate
