// Package pretrain trains a tiny CLIP from scratch on captioned images: images that models/synthetic draws, and
// labelled sets with captions from templates. It may import models, runtime and federation/data. No package of a
// federated run imports it.
//
// The bundled backbones (models/tiny) were trained with it, by the files in configs/pretrain. The result is an OpenCLIP
// folder, the one published layout that keeps OpenAI's tensor names and also states the activation and the number of
// heads of the towers.
//
// A batch is a function of the seed and the step, so a run that is resumed from its checkpoint ends with the same bytes
// as an uninterrupted run, on the same machine and with the same number of threads.
package pretrain
