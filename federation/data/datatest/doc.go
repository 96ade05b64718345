// Package datatest holds helpers of tests of image sets: small folders, images and expected values.
package datatest
