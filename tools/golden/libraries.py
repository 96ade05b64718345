"""Lets the libraries that people really use write small CLIP checkpoints, and stores what they compute with them.

    pip install torch torchvision transformers tokenizers open_clip_torch openai-clip
    python3 tools/golden/libraries.py bpe_simple_vocab_16e6.txt.gz DIR [full]
    PROMPTFED_TEST_LIBRARIES=DIR PROMPTFED_TEST_VOCAB=bpe_simple_vocab_16e6.txt.gz go test -run Libraries ./models/bundle/converted

With full, sizes are those of ViT-B/32 (ViT-B/16 for OpenCLIP's) and DIR takes 5 GB. Tried with transformers 4.30, open_clip_torch 2.20 and openai-clip 1.0 on PyTorch 1.13. Nothing of it is committed: the
vocabulary alone is several megabytes.
"""
import collections
import gzip
import json
import os
import pathlib
import shutil
import sys

import torch

import checkpoint as ck

TEXTS = ["a photo of a cat.", "the quick brown fox, jumping", "dog"]


def store(out, name, image, text):
    ck.write_safetensors(f"{out}/{name}.golden.safetensors", collections.OrderedDict(
        pixels=PIXELS, image=image.detach().float(), text=text.detach().float()))


def spread(model):
    """Weights large enough that every part of the model counts."""
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            p.data = torch.randn_like(p) * (0.1 if "embed" in name else 0.7 / p[0].numel() ** 0.5)
        elif "logit" not in name:
            p.data = p.data + 0.1 * torch.randn_like(p)
    return model.eval()


def hugging_face(out, vocab):
    from transformers import (CLIPConfig, CLIPFeatureExtractor, CLIPModel, CLIPTextConfig, CLIPTokenizer, CLIPVisionConfig)
    from transformers.models.clip.tokenization_clip import bytes_to_unicode
    lines = gzip.open(vocab, "rt", encoding="utf-8").read().split("\n")[1:48894 + 1]
    chars = list(bytes_to_unicode().values())
    names = chars + [c + "</w>" for c in chars] + ["".join(m.split()) for m in lines] + ["<|startoftext|>", "<|endoftext|>"]
    files = [f"{out}/vocab.json", f"{out}/merges.txt"]
    with open(files[0], "w", encoding="utf-8") as f:
        json.dump({t: i for i, t in enumerate(names)}, f, ensure_ascii=False)
    with open(files[1], "w", encoding="utf-8") as f:
        f.write("\n".join(["#version: 0.2"] + lines) + "\n")
    tokenizer = CLIPTokenizer(*files)
    text = CLIPTextConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4)
    vision = CLIPVisionConfig(hidden_size=96, intermediate_size=384, num_hidden_layers=2, num_attention_heads=6, image_size=64,
                              patch_size=16)
    if FULL:  # transformers' defaults
        text, vision = CLIPTextConfig(), CLIPVisionConfig()
    model = spread(CLIPModel(CLIPConfig.from_text_vision_configs(text, vision, projection_dim=512 if FULL else 48)))
    ids = tokenizer(TEXTS, padding=True, return_tensors="pt")
    for name, options in (("hf_safe", dict(safe_serialization=True)), ("hf_bin", dict(safe_serialization=False)),
                          ("hf_shards", dict(safe_serialization=True, max_shard_size="200MB" if FULL else "2MB")),
                          ("hf_half", dict(safe_serialization=True))):
        if name == "hf_half":
            model.half()
        model.save_pretrained(f"{out}/{name}", **options)
        tokenizer.save_pretrained(f"{out}/{name}")
        if name != "hf_bin":
            CLIPFeatureExtractor(size=PIXELS.shape[-1], crop_size=PIXELS.shape[-1]).save_pretrained(f"{out}/{name}")
        model.float()
        store(out, name, model.get_image_features(PIXELS), model.get_text_features(**ids))


def open_clip(out):
    from open_clip import tokenize
    from open_clip.model import CLIP
    from open_clip.push_to_hf_hub import save_config_for_hf
    for name, quick in (("oc", False), ("oc_quick", True)):
        cfg = dict(embed_dim=48, vision_cfg=dict(image_size=64, layers=2, width=128, patch_size=16),
                   text_cfg=dict(context_length=77, vocab_size=49408, width=64, heads=2, layers=3), quick_gelu=quick)
        if FULL:
            cfg.update(embed_dim=512, vision_cfg=dict(image_size=224, layers=12, width=768, patch_size=16),
                       text_cfg=dict(context_length=77, vocab_size=49408, width=512, heads=8, layers=12))
        model = spread(CLIP(**cfg))
        model.visual.image_mean = model.visual.image_std = (0.5, 0.5, 0.5)
        folder = pathlib.Path(out, name)
        folder.mkdir(exist_ok=True)
        save_config_for_hf(model, folder / "open_clip_config.json", cfg)
        torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
        store(out, name, model.encode_image(PIXELS), model.encode_text(tokenize(TEXTS)))
        torch.save(dict(epoch=1, name=name, state_dict={"module." + k: v for k, v in model.state_dict().items()},
                        optimizer=torch.optim.AdamW(model.parameters()).state_dict()), f"{out}/{name}_train.pt")
        shutil.copy(f"{out}/{name}.golden.safetensors", f"{out}/{name}_train.golden.safetensors")


def openai(out):
    from clip import tokenize
    from clip.model import CLIP, convert_weights
    sizes = (512, 224, 12, 768, 32, 77, 49408, 512, 8, 12) if FULL else (48, 64, 2, 128, 16, 77, 49408, 64, 1, 3)
    half, model = spread(CLIP(*sizes)), CLIP(*sizes).eval()
    convert_weights(half)
    torch.save(half.state_dict(), f"{out}/openai_sd.pt")
    model.load_state_dict({k: v.float() for k, v in half.state_dict().items()})
    tokens = tokenize(TEXTS)
    for name in ("openai", "openai_sd"):
        store(out, name, model.encode_image(PIXELS), model.encode_text(tokens))
    traced = torch.jit.trace(model, (PIXELS[:1], tokens[:1]), check_trace=False)
    convert_weights(model)  # and with it the trace
    torch.jit.save(traced, f"{out}/openai.pt")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["full"]):
        sys.exit(__doc__)
    FULL = len(sys.argv) == 4
    torch.manual_seed(7)
    PIXELS = torch.randn(2, 3, 224, 224) if FULL else torch.randn(2, 3, 64, 64)
    os.makedirs(sys.argv[2], exist_ok=True)
    hugging_face(sys.argv[2], sys.argv[1])
    open_clip(sys.argv[2])
    openai(sys.argv[2])
