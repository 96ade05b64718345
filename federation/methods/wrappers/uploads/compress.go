package uploads

import (
	"promptfed/federation/compression"
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
)

// Compress makes uploads smaller. Of a client's update, the shared parameters minus the received ones, it sends
//   - top-k: the share of its numbers that are largest, and where they are (Stich et al., Sparsified SGD with Memory,
//     NeurIPS 2018);
//   - sign: a bit for each number, and for each bucket of them the mean of their absolute values (Karimireddy et al.,
//     Error Feedback Fixes SignSGD and other Gradient Compression Schemes, ICML 2019, algorithm 1; buckets as in Zheng
//     et al., NeurIPS 2019);
//   - quantise: for each bucket its norm, and for each number a sign and one of the levels 0 to s, rounded up or down
//     at random so that it is right on average (Alistarh et al., QSGD, NeurIPS 2017, section 3.1; a fixed number of
//     bits in place of Elias codes).
//
// With feedback the client keeps the difference and adds it to its next update (ef/e below); auto is on with top-k and
// sign. Quantised values are right on average without feedback. With feedback they are divided by 1 + min(n/s²,
// √n/s), n being the bucket, as the error would grow otherwise (Horváth and Richtárik, ICLR 2021, section 2.3).
//
// Bytes in records are those of the messages, also across machines. Only the shared parameters of uploads are
// compressed: extras and messages of the server are not. Layers outside, such as robust, see uploads as the server
// reads them. share: 1 compresses nothing.
//
// Names: ef/e/NAME, like NAME, in the client's state.
type Compress struct {
	method.Method
	Kind     string  `config:"kind" in:"top-k|sign|quantise" help:"top-k, sign or quantise"`
	Share    float64 `config:"share" in:"1e-6..1" help:"share of numbers that top-k uploads, rounded up; 1: all"`
	Levels   int     `config:"levels" in:"1..65535" help:"s, levels of quantise: 1, 7 and 127 take 2, 4 and 8 bits"`
	Bucket   int     `config:"bucket" in:"0..1e9" help:"numbers that share one scale in sign and quantise; 0: all"`
	Feedback string  `config:"feedback" in:"on|off|auto" help:"carry the unsent part over to the next update"`
}

var compressDef = layer.Def{Name: "compress", Title: "compressed uploads",
	Paper:   "Stich et al., NeurIPS 2018; Karimireddy et al., ICML 2019; Alistarh et al., QSGD, NeurIPS 2017",
	Suits:   layer.RequireShared,
	Default: Compress{Kind: compression.TopK, Share: 0.1, Levels: 7, Bucket: 512, Feedback: "auto"}}

func (m Compress) on() bool { return m.Kind != compression.TopK || m.Share < 1 }

// Properties declares that the server needs each client's own upload, since compressed ones cannot be added up, unless
// top-k with share: 1 compresses nothing.
func (m Compress) Properties() method.Properties {
	if !m.on() {
		return method.Properties{Mean: method.InnerWeights}
	}
	return method.Properties{Needs: "each client's compressed upload, and compressed uploads cannot be added up; " +
		"remove it"}
}

// Codec implements method.Client.
func (m Compress) Codec() method.Codec {
	if !m.on() {
		return m.Method.Codec()
	}
	return compression.Codec{Kind: m.Kind, Share: m.Share, Levels: m.Levels, Bucket: m.Bucket,
		Feedback: m.Feedback == "on" || m.Feedback == "auto" && m.Kind != compression.Quantise}
}
