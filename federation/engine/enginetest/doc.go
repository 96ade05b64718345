// Package enginetest runs small experiments on toy clients, for tests of the engine and of its users.
package enginetest
