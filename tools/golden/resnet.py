"""CLIP's modified ResNet in PyTorch, and what the Go towers, readers and bundles are held against.

Written from Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision", section 2.4 and the
names and shapes of the published weights: a stem of three 3x3 convolutions and an average pooling; bottlenecks of expansion 4
whose stride is an average pooling behind the second convolution and in the shortcut; multi-head attention pooling that the mean
of the feature map queries. Patch features are the same pooling with every cell as the query.

    python3 tools/golden/resnet.py [bpe_simple_vocab_16e6.txt.gz IMAGES]

writes models/checkpoint/testdata/shapes.json.gz (tensors of all published CLIPs), models/clip/testdata/resnet.json and
resnet-full.json and, with the vocabulary and a folder of pictures, models/bundle/converted/testdata/resnet: one small CLIP in two
formats and what PyTorch computes with it, scores of some pictures included.
"""
import collections
import glob
import gzip
import json
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

import bundle
import checkpoint as ck
import towers


class Bottleneck(nn.Module):
    def __init__(self, inner, mid, stride):
        super().__init__()
        self.stride = stride
        self.conv1, self.bn1 = nn.Conv2d(inner, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv2, self.bn2 = nn.Conv2d(mid, mid, 3, padding=1, bias=False), nn.BatchNorm2d(mid)
        self.conv3, self.bn3 = nn.Conv2d(mid, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid)
        self.downsample = None
        if stride > 1 or inner != 4 * mid:
            self.downsample = nn.Sequential(nn.Conv2d(inner, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        if self.stride > 1:
            x, y = F.avg_pool2d(x, self.stride), F.avg_pool2d(y, self.stride)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class AttentionPool(nn.Module):
    def __init__(self, side, width, heads, joint):
        super().__init__()
        self.heads = heads
        self.positional_embedding = nn.Parameter(torch.randn(side * side + 1, width) / width ** 0.5)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.c_proj = nn.Linear(width, joint)

    def forward(self, x):
        """[B,width,side,side] to [B,1+side*side,joint]; row 0 is what CLIP uses."""
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + self.positional_embedding
        q, k, v = (p(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        a = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.c_proj(a.transpose(1, 2).flatten(2))


class ResNet(nn.Module):
    def __init__(self, stages, width, image, joint):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width // 2, 3, 2, 1, bias=False), nn.BatchNorm2d(width // 2)
        self.conv2, self.bn2 = nn.Conv2d(width // 2, width // 2, 3, 1, 1, bias=False), nn.BatchNorm2d(width // 2)
        self.conv3, self.bn3 = nn.Conv2d(width // 2, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        inner = width
        for i, blocks in enumerate(stages):
            mid, stage = width << i, []
            for b in range(blocks):
                stage.append(Bottleneck(inner, mid, 2 if b == 0 and i > 0 else 1))
                inner = 4 * mid
            setattr(self, f"layer{i + 1}", nn.Sequential(*stage))
        self.attnpool = AttentionPool(image // 32, 32 * width, width // 2, joint)

    def everything(self, x):
        for conv, bn in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
            x = F.relu(bn(conv(x)))
        x = F.avg_pool2d(x, 2)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.attnpool(x)

    def forward(self, x):
        return self.everything(x)[:, 0]


# --- every published size ---

Sizes = collections.namedtuple("Sizes", "layers width patch image joint text heads")
PUBLISHED = {  # and millions of parameters, as OpenCLIP's list of models states them
    "RN50": (Sizes((3, 4, 6, 3), 64, None, 224, 1024, 512, 8), 102.01),
    "RN101": (Sizes((3, 4, 23, 3), 64, None, 224, 512, 512, 8), 119.69),
    "RN50x4": (Sizes((4, 6, 10, 6), 80, None, 288, 640, 640, 10), 178.30),
    "RN50x16": (Sizes((6, 8, 18, 8), 96, None, 384, 768, 768, 12), 290.98),
    "RN50x64": (Sizes((3, 15, 36, 10), 128, None, 448, 1024, 1024, 16), 623.26),
    "ViT-B/32": (Sizes(12, 768, 32, 224, 512, 512, 8), 151.28),
    "ViT-B/16": (Sizes(12, 768, 16, 224, 512, 512, 8), 149.62),
    "ViT-L/14": (Sizes(24, 1024, 14, 224, 768, 768, 12), 427.62),
    "ViT-L/14@336": (Sizes(24, 1024, 14, 336, 768, 768, 12), 427.94),
}


def build(s, text_layers=12, context=77, vocab=49408, facts=False):
    """A CLIP with the names of OpenAI's weights."""
    ck.VISION, ck.TEXT, ck.EMBED, ck.IMAGE, ck.PATCH, ck.CONTEXT, ck.VOCAB = s.width, s.text, s.joint, s.image, s.patch or 32, context, vocab
    visual = ck.Vision(s.layers, s.width // 64) if s.patch else ResNet(s.layers, s.width, s.image, s.joint)
    return ck.CLIP(text_layers, facts, visual, s.heads).eval()


def features(visual, pixels):
    """joint [B,D] and patches [B,M,D] of either kind of tower."""
    if isinstance(visual, ResNet):
        x = visual.everything(pixels)
        return x[:, 0], x[:, 1:]
    return bundle.image_features(visual, pixels)


def shapes():
    out = {}
    for name, (s, millions) in PUBLISHED.items():
        with Meta():
            model = build(s)
        params = sum(p.numel() for p in model.parameters())
        assert abs(params / 1e6 - millions) < 0.0051, (name, params)
        out[name] = {k: list(v.shape) for k, v in model.state_dict().items()}
    with gzip.GzipFile("models/checkpoint/testdata/shapes.json.gz", "w", mtime=0) as f:
        f.write(json.dumps(out, sort_keys=True, separators=(",", ":")).encode())


class Meta:
    """Makes parameters without memory."""

    def __enter__(self):
        self.saved = nn.Module.register_parameter, nn.Module.register_buffer
        plain, buffer = self.saved

        def meta(m, name, p):
            plain(m, name, None if p is None else nn.Parameter(p.data.to("meta")))

        def meta_buffer(m, name, b, persistent=True):
            buffer(m, name, None if b is None else b.to("meta"), persistent)
        nn.Module.register_parameter, nn.Module.register_buffer = meta, meta_buffer

    def __exit__(self, *_):
        nn.Module.register_parameter, nn.Module.register_buffer = self.saved


# --- towers of formula weights, in double precision ---

def formula(name, shape):
    """The formula of towers.py, with scales that keep the activations of a ResNet of any depth near 1 (resnet_test.go)."""
    size = int(np.prod(shape))
    last = name.rsplit(".", 1)[1]
    offset, scale = 0.0, 0.1
    if last == "running_var":
        offset, scale = 1.0, 0.5
    elif len(shape) == 4:
        scale = math.sqrt(6 / int(np.prod(shape[1:])))
    elif last == "weight" and len(shape) == 2:
        scale = math.sqrt(3 / shape[1]) * (0.3 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1)
    elif last == "weight":
        offset = 0.3 if ".layer" in name and ".bn3." in name else 1.0
    i = np.arange(size, dtype=np.uint32)
    v = offset + scale * (2 * towers.unit(towers.fnv1a(name) + i) - 1)
    return torch.from_numpy(v.astype(np.float32).astype(np.float64).reshape(shape))


def pixels_of(batch, image):
    """Squares of 16 pixels in one colour each: noise of single pixels would not get past the poolings."""
    g = image // 16
    v = 2 * towers.unit(towers.fnv1a("pixels") + np.arange(batch * 3 * g * g, dtype=np.uint32)) - 1
    v = (2 * v).astype(np.float32).astype(np.float64).reshape(batch, 3, g, g)
    return torch.from_numpy(v.repeat(16, 2).repeat(16, 3))


def case(name, stages, width, image, joint, batch, every):
    model = ResNet(stages, width, image, joint).double().eval()
    for k, t in model.state_dict().items():  # detached, of the same memory
        if not k.endswith("num_batches_tracked"):
            t.copy_(formula("visual." + k, tuple(t.shape)))
    out = {"name": name, "stages": stages, "width": 32 * width, "image": image, "joint": joint, "batch": batch, "every": every}
    p = pixels_of(batch, image).requires_grad_()
    j, patches = features(model, p)
    (j * towers.formula("cotangent", list(j.shape))).sum().backward()
    c = torch.nn.functional.cosine_similarity(patches[0, 0], patches[0, -1], 0)
    print(name, "rms", j.detach().std().item(), "patches", patches.detach().std().item(), "cosine of patches", c.item(),
          "pixel gradient", p.grad.abs().max().item())
    if batch > 1:
        print("  cosine of images", torch.nn.functional.cosine_similarity(j[0], j[1], 0).item())
    out["features"] = towers.numbers(j, every)
    out["patches"] = towers.numbers(patches, every * every)
    out["pixels"] = towers.numbers(p.grad, every * every * every)
    return out


# --- a small CLIP ---

OUT = "models/bundle/converted/testdata/resnet"
SMALL = Sizes([1, 2, 1, 1], 2, None, 64, 6, 8, 2)


def trained(tower, pixels):
    """Batch normalisations with drawn gains and the moments of these pixels, as training leaves them: without, what a deep
    tower makes of two pictures hardly differs."""
    norms = [m for m in tower.modules() if isinstance(m, nn.BatchNorm2d)]
    for m in norms:
        m.weight.data, m.bias.data = 0.5 + torch.rand_like(m.weight), 0.3 * torch.randn_like(m.bias)
        m.momentum = None  # the mean over all batches, of which there is one
    if norms:
        tower.train()
        with torch.no_grad():
            tower(pixels)
            for m in norms:  # channels that never fire would make the most of any noise
                m.running_var.clamp_(min=0.1 * m.running_var.mean().item())
        tower.eval()


def hybrid(sd):
    """transformers' names for the text tower, OpenAI's behind vision_model. for the image tower, which transformers has not."""
    text = ck.huggingface({k: v for k, v in sd.items() if not k.startswith("visual.")})
    out = collections.OrderedDict((k, v.contiguous()) for k, v in text.items() if "position_ids" not in k)
    out.update((k.replace("visual.", "vision_model."), v) for k, v in sd.items() if k.startswith("visual."))
    return out


def pictures(folder, size, count, mode="RGB"):
    """Pictures from all over a folder: their paths in it, and [count,3,size,size] normalised as CLIP does. With mode L they
    are grey: decoders of JPEG files differ in how they enlarge colours."""
    paths = sorted(p for e in ("jpg", "png") for p in glob.glob(f"{folder}/**/*.{e}", recursive=True))
    if len(paths) < count:
        sys.exit(f"{folder}: {len(paths)} pictures, want {count}")
    paths = [paths[i * len(paths) // count] for i in range(count)]
    images = [Image.open(p).convert(mode).convert("RGB") for p in paths]
    assert all(i.width == i.height for i in images), "want square pictures, which need no cropping"
    x = np.stack([np.asarray(i.resize((size, size), Image.BICUBIC), np.float32) / 255 for i in images])
    mean, std = np.float32([0.48145466, 0.4578275, 0.40821073]), np.float32([0.26862954, 0.26130258, 0.27577711])
    return [os.path.relpath(p, folder) for p in paths], torch.from_numpy(((x - mean) / std).transpose(0, 3, 1, 2).copy())


def small_bundle(vocab, images):
    torch.manual_seed(151203385)
    os.makedirs(OUT, exist_ok=True)
    _, tok = bundle.merges_of(vocab)
    model = build(SMALL, text_layers=2, context=32, vocab=512 + bundle.MERGES + 2)
    paths, pixels = pictures(images, 64, 28, "L")
    trained(model.visual, pixels)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.half().float())
    squares = torch.randn(3, 3, 8, 8)  # of 8 pixels: the test enlarges them
    golden = bundle.expected(model, tok, features, squares.repeat_interleave(8, 2).repeat_interleave(8, 3))
    golden["squares"] = squares
    del golden["pixels"]
    ck.write_safetensors(f"{OUT}/golden.safetensors", golden)
    lower = collections.OrderedDict((k, v.half() if v.is_floating_point() and "running" not in k else v)
                                    for k, v in model.state_dict().items())

    scores = F.normalize(model.visual(pixels), dim=1) @ F.normalize(golden["end"], dim=1).t()
    ck.dump(f"{OUT}/scores.json", {p: [round(v, 6) for v in row] for p, row in zip(paths, scores.tolist())})

    hf = f"{OUT}/huggingface"
    os.makedirs(hf, exist_ok=True)
    text = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, vocab_size=ck.VOCAB, max_position_embeddings=32,
                intermediate_size=32, hidden_act="quick_gelu", eos_token_id=ck.VOCAB - 1)
    ck.dump(f"{hf}/config.json", dict(model_type="clip", projection_dim=6, text_config=text,
                                      vision_config=dict(image_size=64, layers=SMALL.layers)))
    ck.write_shards(hf, hybrid(lower))
    torch.save(lower, f"{OUT}/openai.pt")


def main(args):
    if args:
        small_bundle(*args)
    shapes()
    towers.write("resnet.json", {"resnet": [case("small", [1, 2, 1, 1], 4, 64, 24, 2, 2), case("wide", [2, 1, 1, 2], 6, 96, 16, 1, 3)]})
    towers.write("resnet-full.json", dict(larger(), resnet=[full(n) for n in ("RN50", "RN101", "RN50x4")]))


def full(name):
    s = PUBLISHED[name][0]
    return case(name, list(s.layers), s.width, s.image, s.joint, 1, 7)


def larger():
    """The image tower of ViT-L/14 and text towers of other sizes than ViT-B's."""
    def text(name):
        s = PUBLISHED[name][0]
        c = towers.text_case(name, "quick_gelu", [16], [0], 3, width=s.text, layers=12, heads=s.heads, joint=s.joint, every=29)
        return dict(c, width=s.text, heads=s.heads, joint=s.joint)
    return {"text": [text(n) for n in ("RN50", "RN50x4", "ViT-L/14")],
            "vision": [towers.vision_case("ViT-L/14", "quick_gelu", 14, 224, 1, width=1024, layers=24, heads=16, joint=768, every=7)]}


if __name__ == "__main__":
    main(sys.argv[1:])
