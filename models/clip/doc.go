// Package clip builds the towers of CLIP (Radford et al. 2021) as graph nodes: the text tower, in its plain form and in
// an exact form that computes the common prefix of class prompts once, and the image towers, vision transformer and
// modified ResNet. Towers hold no weights; they request each tensor from a Weights by its name in OpenAI's checkpoints.
// It may import runtime/convert, runtime/graph, runtime/nn and runtime/tensor.
package clip
