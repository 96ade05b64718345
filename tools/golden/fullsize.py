"""Writes full-size random CLIPs as people have them on disk, and what PyTorch computes with them in double precision.

    python3 tools/golden/fullsize.py FOLDER IMAGES VOCAB [NAME ...]

For each name (default RN50 RN101 ViT-B/32 ViT-B/16) FOLDER gets NAME-openai.pt (TorchScript, half precision), NAME-state.pt (its
state dict), NAME-openclip and NAME-huggingface (float32, same numbers), each with a .golden.safetensors beside it: pixels and
image features of pictures from the folder IMAGES, text features, a prompt's gradient, class scores, and how far PyTorch's own
float32 is from those. TestFullSizeCheckpoints of models/bundle/converted reads the folder. Batch normalisations get the moments of the
pictures, as training leaves them, so that features of different pictures differ.
"""
import collections
import gzip
import os
import sys

import torch
from torch import nn

import bundle
import checkpoint as ck
import resnet

SENTENCES = ["a photo of a cat.", "the quick brown fox, jumping", "dog"]
CLASSES = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
COUNT, CTX = 8, 16


def vocabulary(path):
    lines = gzip.open(path, "rt", encoding="utf-8").read().split("\n")[1:49152 - 256 - 2 + 1]
    return bundle.Tokenizer([tuple(line.split()) for line in lines])


def lively(model, pixels):
    """Draws what starts as a constant, and lets batch normalisations see the pictures."""
    for name, p in model.named_parameters():
        if p.dim() == 1 and name != "logit_scale":
            p.data = p.data + 0.1 * torch.randn_like(p)
        elif "embedding" in name:
            p.data = torch.randn_like(p) * 0.05
        elif p.dim() == 2 and name.endswith(("proj", "text_projection")):
            p.data = torch.randn_like(p) * p.shape[0] ** -0.5
    resnet.trained(model.visual, pixels)


NAMES = ["image", "patches", "text", "end", "gradient", "scores"]


def computed(model, tok, pixels, ctx):
    """NAMES in the precision of the model."""
    kind = next(model.parameters()).dtype
    with torch.no_grad():
        image, patches = resnet.features(model.visual, pixels.to(kind))
        rows = [model.token_embedding(torch.tensor([49406] + tok.encode(s) + [49407])) for s in SENTENCES]
        text = bundle.text_features(model, rows)
    ctx = ctx.to(kind, copy=True).requires_grad_()
    unit = image / image.norm(dim=1, keepdim=True)
    end = bundle.placed(model, tok, ctx, "end")
    scores = unit @ (end / end.norm(dim=1, keepdim=True)).t()
    nn.functional.cross_entropy(100 * scores, torch.arange(COUNT) % len(CLASSES)).backward()
    return [v.detach() for v in (image, patches, text, end, ctx.grad, scores)]


def expected(model, tok, pixels):
    """What PyTorch has in double precision; own is how far its float32 is from that, of the largest value of each of NAMES."""
    bundle.CLASSES, bundle.CTX = CLASSES, CTX
    ctx = 0.05 * torch.randn(CTX, ck.TEXT)
    single = computed(model.float().eval(), tok, pixels, ctx)
    double = computed(model.double(), tok, pixels, ctx)
    own = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(single, double)]
    image, scores = double[0], double[5]
    unit = image / image.norm(dim=1, keepdim=True)
    cosine = (unit @ unit.t() - torch.eye(COUNT)).abs().max().item()
    gaps = scores.sort(1).values.diff(dim=1).min().item()
    print(f"  largest cosine of two pictures {cosine:.4f}, smallest gap between two scores {gaps:.2e}, best {scores.argmax(1).tolist()}")
    print("  float32 differs by", ", ".join(f"{n} {e:.1e}" for n, e in zip(NAMES, own)))
    golden = [("pixels", pixels), ("ctx", ctx), ("own", torch.tensor(own)), *zip(NAMES, double)]
    return collections.OrderedDict([("target", torch.arange(COUNT) % len(CLASSES))] + [(k, v.float()) for k, v in golden])


def write(folder, name, tok, images):
    torch.manual_seed(len(name) * 1009 + ord(name[2]))
    s = resnet.PUBLISHED[name][0]
    print(name, flush=True)
    model = resnet.build(s, facts=True)
    pixels = resnet.pictures(images, s.image, COUNT)[1]
    lively(model, pixels)
    for p in model.parameters():
        p.data = p.data.half().float()
    sd = collections.OrderedDict((k, v.clone()) for k, v in model.state_dict().items())
    weights = collections.OrderedDict((k, v) for k, v in sd.items() if k not in ("input_resolution", "context_length", "vocab_size"))
    base = os.path.join(folder, name.replace("/", ""))

    d = base + "-openclip"
    os.makedirs(d, exist_ok=True)
    vision = dict(image_size=s.image, layers=s.layers, width=s.width, patch_size=s.patch)
    ck.dump(f"{d}/open_clip_config.json", {"model_cfg": {"embed_dim": s.joint, "quick_gelu": True, "vision_cfg": vision,
            "text_cfg": dict(context_length=77, vocab_size=49408, width=s.text, heads=s.heads, layers=12)}})
    ck.write_safetensors(f"{d}/open_clip_model.safetensors", weights)

    d = base + "-huggingface"
    os.makedirs(d, exist_ok=True)
    text = dict(hidden_size=s.text, intermediate_size=4 * s.text, num_attention_heads=s.heads)
    if s.patch:
        vision = dict(hidden_size=s.width, intermediate_size=4 * s.width, num_hidden_layers=s.layers, patch_size=s.patch,
                      num_attention_heads=s.width // 64, image_size=s.image)
        tensors = collections.OrderedDict((k, v.contiguous()) for k, v in ck.huggingface(weights).items())
    else:
        vision, tensors = dict(image_size=s.image, layers=s.layers), resnet.hybrid(weights)
    ck.dump(f"{d}/config.json", dict(model_type="clip", projection_dim=s.joint, text_config=text, vision_config=vision))
    ck.write_shards(d, tensors)
    del tensors

    traced = torch.jit.trace(model, (pixels[:1], torch.randint(0, 49408, (1, 77))), check_trace=False)
    ck.half(traced)
    torch.jit.save(traced, base + "-openai.pt")
    torch.save(collections.OrderedDict((k, v.half() if v.is_floating_point() and "running" not in k else v) for k, v in sd.items()), base + "-state.pt")
    del traced
    model.load_state_dict(sd)
    golden = expected(model, tok, pixels)
    for kind in ("openai", "state", "openclip", "huggingface"):
        ck.write_safetensors(f"{base}-{kind}.golden.safetensors", golden)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    target, images, vocab, *names = sys.argv[1:]
    os.makedirs(target, exist_ok=True)
    tokenizer = vocabulary(vocab)
    for n in names or ("RN50", "RN101", "ViT-B/32", "ViT-B/16"):
        write(target, n, tokenizer, images)
