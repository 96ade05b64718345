// Package pretrain trains a tiny CLIP from scratch on captioned images: those that models/synthetic draws, and labelled
// sets whose captions come from templates. It runs on the engine that tunes prompts, with the weights as the inputs of
// the gradient. It lies on this floor because models must not import ONNX Runtime.
//
// The bundled backbones (models/tiny) were made by it, with the files in configs/pretrain. What is trained is written
// as an OpenCLIP folder, the one published layout that keeps OpenAI's tensor names and also says which activation and
// how many heads the towers have.
//
// A batch is a function of the seed and the step alone, so a run that is resumed from its checkpoint ends in the same
// bytes as one that was not interrupted, on the same machine and with the same number of threads.
package pretrain
