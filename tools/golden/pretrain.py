"""Golden numbers of one contrastive training step: loss and gradient of every weight of a small CLIP.

Writes tools/lab/pretrain/testdata/step.safetensors, and step-resnet.safetensors with a ResNet as the image tower, whose batch
normalisations use the batch's own moments, which are written too. The model is written out here in torch operators, in float64, from
the formulas of Radford et al. 2021 (towers, symmetric loss) and Yang et al. 2022 (several positives per row); weights and
inputs follow the formulas below, which the Go test repeats.
"""
import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
B, L, VOCAB, CONTEXT, JOINT = 5, 6, 11, 77, 6
TEXT = dict(width=8, layers=2, heads=2)
IMAGE = dict(width=12, layers=2, heads=3, patch=4, size=8)
RESNET = dict(width=64, stages=(1, 1, 2, 1), size=64)
CAPTIONS = [0, 1, 0, 2, 1]  # equal numbers are equal captions
TOKENS = [[9, 1, 2, 10, 0, 0], [9, 3, 10, 0, 0, 0], [9, 1, 2, 10, 0, 0], [9, 4, 5, 6, 7, 10], [9, 3, 10, 0, 0, 0]]
END = [3, 2, 3, 5, 2]


def formula(name, shape, base=0.0, size=0.3):
    """base + size sin(0.7 i + s), s being the sum of the name's bytes."""
    n = math.prod(shape)
    s = sum(name.encode())
    return (base + size * torch.sin(0.7 * torch.arange(n) + s)).reshape(shape)


def scattered(name, shape, base=0.0, size=0.3):
    """base + size (2u-1), u being the fraction of 43758.5453 sin(12.9898 i + s): no pattern that a convolution would see, so that
    no channel is nearly constant and divided by next to nothing."""
    n = math.prod(shape)
    v = 43758.5453 * torch.sin(12.9898 * torch.arange(n) + sum(name.encode()))
    return (base + size * (2 * (v - v.floor()) - 1)).reshape(shape)


def shapes(resnet):
    w, iw = TEXT["width"], IMAGE["width"]
    out = {"token_embedding.weight": (VOCAB, w), "positional_embedding": (CONTEXT, w), "ln_final.weight": (w,),
           "ln_final.bias": (w,), "text_projection": (w, JOINT), "logit_scale": ()}
    if resnet:
        out.update(resnet_shapes())
    else:
        out.update({"visual.conv1.weight": (iw, 3, IMAGE["patch"], IMAGE["patch"]), "visual.class_embedding": (iw,),
           "visual.positional_embedding": (1 + (IMAGE["size"] // IMAGE["patch"]) ** 2, iw), "visual.ln_pre.weight": (iw,),
           "visual.ln_pre.bias": (iw,), "visual.ln_post.weight": (iw,), "visual.ln_post.bias": (iw,), "visual.proj": (iw, JOINT)})
    for prefix, width, layers in (("", w, TEXT["layers"]), ("visual.", iw, 0 if resnet else IMAGE["layers"])):
        for i in range(layers):
            p = f"{prefix}transformer.resblocks.{i}."
            for ln in ("ln_1", "ln_2"):
                out[p + ln + ".weight"], out[p + ln + ".bias"] = (width,), (width,)
            for name, o, n in (("attn.in_proj_", 3 * width, width), ("attn.out_proj.", width, width),
                               ("mlp.c_fc.", 4 * width, width), ("mlp.c_proj.", width, 4 * width)):
                out[p + name + "weight"], out[p + name + "bias"] = (o, n), (o,)
    return out


def convolutions():
    """(convolution, normalisation, channels out, channels in, kernel) of CLIP's ResNet, in order."""
    stem = RESNET["width"] // 32
    yield "visual.conv1", "visual.bn1", stem // 2, 3, 3
    yield "visual.conv2", "visual.bn2", stem // 2, stem // 2, 3
    yield "visual.conv3", "visual.bn3", stem, stem // 2, 3
    inner = stem
    for i, n in enumerate(RESNET["stages"]):
        mid = stem * 2**i
        for b in range(n):
            p = f"visual.layer{i + 1}.{b}."
            yield p + "conv1", p + "bn1", mid, inner, 1
            yield p + "conv2", p + "bn2", mid, mid, 3
            yield p + "conv3", p + "bn3", 4 * mid, mid, 1
            if b == 0:
                yield p + "downsample.0", p + "downsample.1", 4 * mid, inner, 1
            inner = 4 * mid


def resnet_shapes():
    width, cells = RESNET["width"], (RESNET["size"] // 32) ** 2
    out = {"visual.attnpool.positional_embedding": (1 + cells, width)}
    for name, o in (("q_proj", width), ("k_proj", width), ("v_proj", width), ("c_proj", JOINT)):
        out[f"visual.attnpool.{name}.weight"], out[f"visual.attnpool.{name}.bias"] = (o, width), (o,)
    for conv, bn, o, i, k in convolutions():
        out[conv + ".weight"], out[bn + ".weight"], out[bn + ".bias"] = (o, i, k, k), (o,), (o,)
    return out


def resnet_features(w, pixels, moments):
    todo = convolutions()

    def conv(x, stride=1):
        name, bn, o, _, k = next(todo)
        x = F.conv2d(x, w[name + ".weight"], stride=stride, padding=k // 2)
        moments[bn + ".running_mean"] = x.mean((0, 2, 3))
        moments[bn + ".running_var"] = x.var((0, 2, 3), unbiased=False)
        return F.batch_norm(x, None, None, w[bn + ".weight"], w[bn + ".bias"], training=True, eps=1e-5)

    x = conv(pixels, 2).relu()
    x = conv(x).relu()
    x = F.avg_pool2d(conv(x).relu(), 2)
    for i, n in enumerate(RESNET["stages"]):
        for b in range(n):
            shrink = 2 if b == 0 and i > 0 else 1
            y = conv(conv(x).relu()).relu()
            y = conv(F.avg_pool2d(y, shrink) if shrink > 1 else y)
            if b == 0:
                x = conv(F.avg_pool2d(x, shrink) if shrink > 1 else x)
            x = (y + x).relu()
    x = x.flatten(2).permute(2, 0, 1)
    x = torch.cat([x.mean(0, keepdim=True), x]) + w["visual.attnpool.positional_embedding"][:, None]
    p = "visual.attnpool."
    width = RESNET["width"]
    out, _ = F.multi_head_attention_forward(
        x[:1], x, x, width, width // 64, None, torch.cat([w[p + n + ".bias"] for n in ("q_proj", "k_proj", "v_proj")]), None, None,
        False, 0.0, w[p + "c_proj.weight"], w[p + "c_proj.bias"], training=False, need_weights=False, use_separate_proj_weight=True,
        q_proj_weight=w[p + "q_proj.weight"], k_proj_weight=w[p + "k_proj.weight"], v_proj_weight=w[p + "v_proj.weight"])
    return unit(out[0])


def base(name):
    if name == "logit_scale":
        return 2.0
    gain = name.endswith(".weight") and ("ln_" in name or ".bn" in name or "downsample.1" in name)
    return 1.0 if gain else 0.0


def norm(x, w, name):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)


def blocks(x, w, prefix, layers, heads, mask):
    for i in range(layers):
        p = f"{prefix}transformer.resblocks.{i}."
        y = norm(x, w, p + "ln_1")
        q, k, v = (y @ w[p + "attn.in_proj_weight"].T + w[p + "attn.in_proj_bias"]).chunk(3, -1)
        n, t, c = q.shape
        q, k, v = (a.reshape(n, t, heads, c // heads).transpose(1, 2) for a in (q, k, v))
        a = q @ k.transpose(-1, -2) / math.sqrt(c // heads)
        a = (a + mask).softmax(-1) @ v
        x = x + a.transpose(1, 2).reshape(n, t, c) @ w[p + "attn.out_proj.weight"].T + w[p + "attn.out_proj.bias"]
        y = norm(x, w, p + "ln_2") @ w[p + "mlp.c_fc.weight"].T + w[p + "mlp.c_fc.bias"]
        x = x + (y * torch.sigmoid(1.702 * y)) @ w[p + "mlp.c_proj.weight"].T + w[p + "mlp.c_proj.bias"]
    return x


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def image_features(w, pixels):
    x = torch.nn.functional.conv2d(pixels, w["visual.conv1.weight"], stride=IMAGE["patch"]).flatten(2).transpose(1, 2)
    x = torch.cat([w["visual.class_embedding"].expand(len(x), 1, -1), x], 1) + w["visual.positional_embedding"]
    x = blocks(norm(x, w, "visual.ln_pre"), w, "visual.", IMAGE["layers"], IMAGE["heads"], 0)
    return unit(norm(x[:, 0], w, "visual.ln_post") @ w["visual.proj"])


def text_features(w, tokens, end):
    x = w["token_embedding.weight"][tokens] + w["positional_embedding"][:L]
    x = blocks(x, w, "", TEXT["layers"], TEXT["heads"], torch.full((L, L), -math.inf).triu(1))
    return unit(norm(x, w, "ln_final")[torch.arange(B), end] @ w["text_projection"])


def loss_of(w, resnet, moments):
    size = (RESNET if resnet else IMAGE)["size"]
    pixels = (scattered if resnet else formula)("pixels", (B, 3, size, size), size=1.0).float().double()
    f = resnet_features(w, pixels, moments) if resnet else image_features(w, pixels)
    t = text_features(w, torch.tensor(TOKENS), torch.tensor(END))
    same = (torch.tensor(CAPTIONS)[:, None] == torch.tensor(CAPTIONS)[None]).double()
    y = same / same.sum(1, keepdim=True)
    s = w["logit_scale"].exp() * f @ t.T
    return -((y * s.log_softmax(1)).sum() + (y * s.T.log_softmax(1)).sum()) / (2 * B)


def write(path, tensors):
    header, at, body = {}, 0, b""
    for name in sorted(tensors):
        t = tensors[name].detach().float().contiguous()
        data = t.numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        body += data
    h = json.dumps(header).encode()
    h += b" " * (-len(h) % 8)
    path.write_bytes(struct.pack("<Q", len(h)) + h + body)


def golden(resnet):
    # weights are float32 in the engine, so their formula is rounded before anything is computed from it
    weights = {n: (scattered if resnet and n.startswith("visual.") else formula)(n, s, base(n)).float().double().requires_grad_() for n, s in shapes(resnet).items()}
    out = {}
    loss = loss_of(weights, resnet, out)
    loss.backward()
    out.update({"grad/" + n: p.grad for n, p in weights.items()})
    # only the positions in use have a gradient: the rest of the table is zero and not worth storing
    out["grad/positional_embedding"] = out["grad/positional_embedding"][:L]
    out["loss"] = loss.detach().reshape(1)
    print(f"loss {loss.item():.6f}")
    return out


if __name__ == "__main__":
    folder = pathlib.Path(__file__).resolve().parents[2] / "federation" / "pretrain" / "testdata"
    folder.mkdir(exist_ok=True)
    write(folder / "step.safetensors", golden(False))
    write(folder / "step-resnet.safetensors", golden(True))
