// Package synthetic generates an unlimited set of small captioned images: drawings of objects and textures in several
// visual domains, for demos, tests and the pretraining of the bundled backbones without a download or a licence. It
// may import runtime/convert.
//
// A sample is a pure function of (class, domain, seed, style): equal arguments give the same picture in every run.
// Pixels are mixed in integers, outlines are computed in float64; a processor that fuses multiply and add (arm64,
// s390x) may round an outline differently and differ from amd64 by one level in single pixels.
package synthetic
