// Package checkpoint reads CLIP weights in the formats in which they are distributed, without copying or converting
// them first. It may import clip, tokenizer and runtime.
//
//   - OpenAI's .pt: a TorchScript archive (ZIP);
//
//   - files of torch.save, new (ZIP) and from before PyTorch 1.6: bare state dicts and training checkpoints;
//
//   - a Hugging Face folder: config.json with model.safetensors, its shards, or pytorch_model.bin;
//
//   - an OpenCLIP folder: open_clip_config.json with open_clip_model.safetensors or open_clip_pytorch_model.bin;
//
//   - a bare .safetensors file.
//
// Files are not trusted. Pickles run no code: a global that is not on a short list is an error that names it. Sizes,
// offsets and nesting are checked before any allocation, and every failure is an error of one line.
package checkpoint
