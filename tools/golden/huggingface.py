"""Lets transformers write a small CLIP of odd sizes into models/bundle/converted/testdata/transformers, with what it computes.

    pip install transformers==4.30.2      (beside Debian's python3-torch 1.13)
    python3 tools/golden/huggingface.py bpe_simple_vocab_16e6.txt.gz

Feed-forward layers are not 4 times as wide as the tower, the tower embeds more tokens than the vocabulary has, and
config.json keeps transformers' default eos_token_id, 2, which is not the end token of the vocabulary (OpenAI's cut after its
first merges). The folder is left as save_pretrained wrote it.
"""
import collections
import gzip
import json
import os
import sys
import tempfile

import torch

import checkpoint as ck
from libraries import spread

OUT = "models/bundle/converted/testdata"
MERGES, CTX = 16, 5
CLASSES = ["cat", "the thing", "sea lion", "red pandas and others"]
SENTENCES = ["a photo of a cat.", "the", "other things"]
TEXT = dict(vocab_size=540, hidden_size=8, intermediate_size=13, num_hidden_layers=2, num_attention_heads=2)
VISION = dict(hidden_size=12, intermediate_size=37, num_hidden_layers=2, num_attention_heads=3, image_size=14, patch_size=2)


def tokenizer(lines):
    from transformers import CLIPTokenizerFast
    from transformers.models.clip.tokenization_clip import bytes_to_unicode
    chars = list(bytes_to_unicode().values())
    names = chars + [c + "</w>" for c in chars] + ["".join(m.split()) for m in lines] + ["<|startoftext|>", "<|endoftext|>"]
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/vocab.json", "w", encoding="utf-8") as f:
            json.dump({t: i for i, t in enumerate(names)}, f, ensure_ascii=False)
        with open(f"{d}/merges.txt", "w", encoding="utf-8") as f:
            f.write("\n".join(["#version: 0.2"] + lines) + "\n")
        return CLIPTokenizerFast(f"{d}/vocab.json", f"{d}/merges.txt")


def prompted(model, tok, ctx):
    """Features of [SOS prompt name . EOT]: the rows of the prompt take the place of embeddings of '!'."""
    ids = tok(["! " * len(ctx) + c + "." for c in CLASSES], padding=True, return_tensors="pt")
    hook = model.text_model.embeddings.token_embedding.register_forward_hook(
        lambda module, args, out: torch.cat([out[:, :1], ctx.expand(len(out), -1, -1), out[:, 1 + len(ctx):]], 1))
    feature = model.get_text_features(**ids)
    hook.remove()
    return feature


def write(out, folder, vocab, merges, text, vision, joint):
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor
    tok = tokenizer(gzip.open(vocab, "rt", encoding="utf-8").read().split("\n")[1:merges + 1])
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=joint)
    model = spread(CLIPModel(config))
    size = vision["image_size"]
    processor = CLIPProcessor(CLIPImageProcessor(size={"shortest_edge": size}, crop_size={"height": size, "width": size}), tok)
    model.save_pretrained(f"{out}/{folder}", safe_serialization=True)
    processor.save_pretrained(f"{out}/{folder}")

    pixels = torch.randn(2, 3, size, size)
    states = model.vision_model(pixels).last_hidden_state
    patches = model.visual_projection(model.vision_model.post_layernorm(states[:, 1:]))
    ctx = torch.randn(CTX, text["hidden_size"], requires_grad=True)
    feature = prompted(model, tok, ctx)
    cotangent = torch.randn_like(feature)
    (feature * cotangent).sum().backward()
    golden = dict(pixels=pixels, image=model.get_image_features(pixels), patches=patches, ctx=ctx, end=feature,
                  cotangent=cotangent, grad=ctx.grad, logit_scale=model.logit_scale.exp().reshape(1),
                  sentences=model.get_text_features(**tok(SENTENCES, padding=True, return_tensors="pt")))
    for c in CLASSES:
        golden[f"tokens/{c}"] = torch.tensor(tok(c + ".").input_ids[1:])
    ck.write_safetensors(f"{out}/{folder}.golden.safetensors", collections.OrderedDict(sorted(
        ((k, v.detach()) for k, v in golden.items()), key=lambda kv: kv[1].is_floating_point())))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.manual_seed(230500037)
    write(OUT, "transformers", sys.argv[1], MERGES, TEXT, VISION, 10)
