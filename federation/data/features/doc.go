// Package features computes features of images with frozen image towers, once for each image, and caches them on disk
// in half or full precision. It may import federation/data, federation/method, models and runtime.
package features
