"""Writes models/bundle/converted/testdata: one small CLIP in three formats, and what PyTorch computes with it.

    python3 tools/golden/bundle.py bpe_simple_vocab_16e6.txt.gz

Weights are rounded to half precision first, so the half-precision archive and the float32 folder hold the same numbers.
The vocabulary is OpenAI's cut after its first merges.
"""
import collections
import gzip
import json
import os
import re
import sys

import torch

import checkpoint as ck

OUT = "models/bundle/converted/testdata"
MERGES = 16
CLASSES = ["cat", "the thing", "sea lion", "red pandas and others"]
SENTENCES = ["a photo of a cat.", "the", "other things"]
CTX = 5


class Tokenizer:
    """Byte pairs for lower-case ASCII without digits or quotes, where CLIP's cleaning does nothing."""

    def __init__(self, merges):
        visible = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
        chars = [chr(b) for b in visible] + [chr(256 + i) for i in range(256 - len(visible))]
        names = chars + [c + "</w>" for c in chars] + [a + b for a, b in merges] + ["<|startoftext|>", "<|endoftext|>"]
        self.ids = {n: i for i, n in enumerate(names)}
        self.merges = merges

    def encode(self, text):
        out = []
        for word in re.findall("[a-z]+|[^a-z ]+", text):
            seq = list(word[:-1]) + [word[-1] + "</w>"]
            for a, b in self.merges:  # in order of rank, each everywhere, is the same as lowest rank first
                i = 0
                while i + 1 < len(seq):
                    if (seq[i], seq[i + 1]) == (a, b):
                        seq[i:i + 2] = [a + b]
                    i += 1
            out += [self.ids[p] for p in seq]
        return out


def sizes():
    """The sizes of the small CLIP, in place of those of checkpoint.py."""
    ck.VISION, ck.TEXT, ck.EMBED, ck.IMAGE, ck.PATCH, ck.CONTEXT, ck.VOCAB = 18, 8, 6, 16, 8, 32, 512 + MERGES + 2


def image_features(v, pixels):
    x = v.conv1(pixels).flatten(2).permute(0, 2, 1)
    x = torch.cat([v.class_embedding + torch.zeros(len(x), 1, ck.VISION), x], 1) + v.positional_embedding
    x = v.ln_post(v.transformer(v.ln_pre(x).permute(1, 0, 2)).permute(1, 0, 2)) @ v.proj
    return x[:, 0], x[:, 1:]


def text_features(m, rows):
    """Features of whole sequences, given as lists of embedding rows that end with EOT."""
    last = torch.tensor([len(r) - 1 for r in rows])
    x = torch.stack([torch.cat([r, torch.zeros(ck.CONTEXT - len(r), ck.TEXT)]) for r in rows]) + m.positional_embedding
    x = m.ln_final(m.transformer(x.permute(1, 0, 2)).permute(1, 0, 2))
    return x[torch.arange(len(rows)), last] @ m.text_projection


def placed(m, tok, ctx, position):
    """[SOS prompt name . EOT], or with the name in the middle or in front of the prompt (CoOp)."""
    rows = []
    for c in CLASSES:
        name, end = m.token_embedding(torch.tensor(tok.encode(c))), m.token_embedding(torch.tensor(tok.encode(".")))
        sos, eot = m.token_embedding(torch.tensor([ck.VOCAB - 2])), m.token_embedding(torch.tensor([ck.VOCAB - 1]))
        half = {"end": CTX, "middle": CTX // 2, "front": 0}[position]
        rows.append(torch.cat([sos, ctx[:half], name, ctx[half:], end, eot]))
    return text_features(m, rows)


def merges_of(vocab):
    """The first merges of OpenAI's vocabulary, as lines and as a tokenizer."""
    lines = gzip.open(vocab, "rt", encoding="utf-8").read().split("\n")[1:MERGES + 1]
    return lines, Tokenizer([tuple(line.split()) for line in lines])


def expected(model, tok, features, pixels):
    """Inputs and what the model makes of them; features(tower, pixels) gives those of image and patches."""
    image, patches = features(model.visual, pixels)
    ctx = torch.randn(CTX, ck.TEXT, requires_grad=True)
    feature = placed(model, tok, ctx, "end")
    cotangent = torch.randn_like(feature)
    (feature * cotangent).sum().backward()
    sentences = [tok.encode(s) for s in SENTENCES]
    rows = [model.token_embedding(torch.tensor([ck.VOCAB - 2] + s + [ck.VOCAB - 1])) for s in sentences]
    golden = dict(pixels=pixels, image=image, patches=patches, ctx=ctx, end=feature, cotangent=cotangent, grad=ctx.grad,
                  middle=placed(model, tok, ctx, "middle"), front=placed(model, tok, ctx, "front"),
                  sentences=text_features(model, rows), logit_scale=model.logit_scale.exp().reshape(1))
    for i, c in enumerate(CLASSES):
        golden[f"tokens/{c}"] = torch.tensor(tok.encode(c + ".") + [ck.VOCAB - 1])
    return collections.OrderedDict(sorted(((k, v.detach()) for k, v in golden.items()), key=lambda kv: kv[1].is_floating_point()))


def main(vocab):
    sizes()
    os.makedirs(f"{OUT}/huggingface", exist_ok=True)
    os.makedirs(f"{OUT}/openclip", exist_ok=True)
    torch.manual_seed(170603762)
    lines, tok = merges_of(vocab)

    model = ck.CLIP().eval()
    for p in model.parameters():
        p.data = p.data.half().float()
    sd = collections.OrderedDict((k, v) for k, v in model.state_dict().items() if v.dim() or k == "logit_scale")

    hf = collections.OrderedDict((k, v.contiguous()) for k, v in ck.huggingface(sd).items())
    text = dict(hidden_size=ck.TEXT, intermediate_size=4 * ck.TEXT, num_hidden_layers=2, num_attention_heads=2,
                max_position_embeddings=ck.CONTEXT, vocab_size=ck.VOCAB, hidden_act="quick_gelu", layer_norm_eps=1e-5,
                eos_token_id=ck.VOCAB - 1)
    vision = dict(hidden_size=ck.VISION, intermediate_size=4 * ck.VISION, num_hidden_layers=2, num_attention_heads=3,
                  image_size=ck.IMAGE, patch_size=ck.PATCH, hidden_act="quick_gelu", layer_norm_eps=1e-5)
    ck.dump(f"{OUT}/huggingface/config.json", dict(architectures=["CLIPModel"], model_type="clip", projection_dim=ck.EMBED,
                                                   text_config=text, vision_config=vision))
    ck.dump(f"{OUT}/huggingface/preprocessor_config.json", dict(size=ck.IMAGE, crop_size=ck.IMAGE, resample=3,
            image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.25, 0.3]))
    ck.write_safetensors(f"{OUT}/huggingface/model.safetensors", hf, {"format": "pt"})
    with open(f"{OUT}/huggingface/vocab.json", "w", encoding="utf-8") as f:
        json.dump(tok.ids, f, ensure_ascii=False, separators=(",", ":"))
    for path in ("huggingface/merges.txt", "merges.txt"):
        with open(f"{OUT}/{path}", "w", encoding="utf-8") as f:
            f.write("\n".join(["#version: 0.2"] + lines) + "\n")

    ck.dump(f"{OUT}/openclip/open_clip_config.json", {"model_cfg": {
        "embed_dim": ck.EMBED, "quick_gelu": True,
        "vision_cfg": dict(image_size=ck.IMAGE, layers=2, width=ck.VISION, patch_size=ck.PATCH, head_width=6),
        "text_cfg": dict(context_length=ck.CONTEXT, vocab_size=ck.VOCAB, width=ck.TEXT, heads=2, layers=2)},
        "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3]}})
    ck.write_safetensors(f"{OUT}/openclip/open_clip_model.safetensors", {k: v.half() for k, v in sd.items()})

    ck.write_safetensors(f"{OUT}/golden.safetensors", expected(model, tok, image_features, torch.randn(3, 3, ck.IMAGE, ck.IMAGE)))

    args = torch.randn(1, 3, ck.IMAGE, ck.IMAGE), torch.randint(0, ck.VOCAB, (1, ck.CONTEXT))
    traced = torch.jit.trace(model, args, check_trace=False)
    ck.half(traced)  # and with it the model
    torch.jit.save(traced, f"{OUT}/openai.pt")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
