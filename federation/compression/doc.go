// Package compression reduces the size of client updates: it sends their largest numbers, their signs, or a few levels.
// With error feedback a client adds the remaining error to its next update. It imports method, not the engine.
package compression
