// Package datatest holds helpers of tests of image sets: small folders, the real images beside the module, and checks
// of errors.
package datatest
