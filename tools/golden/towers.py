"""Writes models/clip/testdata/golden.json and full.json: what CLIP's towers give in PyTorch, in double precision.

The towers are written here from the published architecture (Radford et al. 2021, "Learning Transferable Visual Models
From Natural Language Supervision", section 2.4): residual blocks x += attn(ln_1 x), x += mlp(ln_2 x) with a causal mask
for text; features read at one position, ln_final, projection; for images a patch convolution, class token, positions,
ln_pre, blocks, ln_post, projection. Weights, prompts and pixels come from a seeded integer formula that the Go tests
repeat (formula_test.go), so that files hold results only.

    python3 tools/golden/towers.py [full]
"""
import json
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/clip/testdata")
SOS, EOT, STOP, PAD = 49406, 49407, 269, 0
GAINS = ("ln_1.weight", "ln_2.weight", "ln_final.weight", "ln_pre.weight", "ln_post.weight")


def unit(x):
    """Hash of 32-bit integers (lowbias32) to [0,1) with 24 bits."""
    x = x.astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(np.float64) / (1 << 24)


def fnv1a(name):
    h = 2166136261
    for b in name.encode():
        h = ((h ^ b) * 16777619) & 0xFFFFFFFF
    return np.uint32(h)


def formula(name, shape):
    offset, scale = 0.0, 0.1
    if name.endswith(GAINS):
        offset = 1.0
    elif name in ("text_projection", "visual.proj"):
        scale = math.sqrt(3 / shape[0])
    elif len(shape) >= 2 and not name.endswith("positional_embedding"):
        scale = math.sqrt(3 / int(np.prod(shape[1:])))
    i = np.arange(int(np.prod(shape)), dtype=np.uint32)
    v = offset + scale * (2 * unit(fnv1a(name) + i) - 1)
    return torch.from_numpy(v.astype(np.float32).astype(np.float64).reshape(shape))


def embed(ids, width):
    i = np.array([[t * width + j for j in range(width)] for t in ids], dtype=np.uint32)
    v = 0.1 * (2 * unit(fnv1a("token_embedding.weight") + i) - 1)
    return torch.from_numpy(v.astype(np.float32).astype(np.float64))


class Block(torch.nn.Module):
    def __init__(self, name, width, heads, mlp, act):
        super().__init__()
        self.heads, self.act = heads, act
        self.p = {}
        for n, s in {
            "ln_1.weight": [width], "ln_1.bias": [width], "ln_2.weight": [width], "ln_2.bias": [width],
            "attn.in_proj_weight": [3 * width, width], "attn.in_proj_bias": [3 * width],
            "attn.out_proj.weight": [width, width], "attn.out_proj.bias": [width],
            "mlp.c_fc.weight": [mlp, width], "mlp.c_fc.bias": [mlp],
            "mlp.c_proj.weight": [width, mlp], "mlp.c_proj.bias": [width],
        }.items():
            self.p[n] = formula(name + n, s)

    def forward(self, x, causal):
        p, (b, n, w) = self.p, x.shape
        h = F.layer_norm(x, [w], p["ln_1.weight"], p["ln_1.bias"], 1e-5)
        # torch's own attention takes the sequence first and adds the mask to the scores
        mask = torch.full((n, n), float("-inf"), dtype=x.dtype).triu(1) if causal else None
        a, _ = F.multi_head_attention_forward(
            h.transpose(0, 1), h.transpose(0, 1), h.transpose(0, 1), w, self.heads, p["attn.in_proj_weight"],
            p["attn.in_proj_bias"], None, None, False, 0.0, p["attn.out_proj.weight"], p["attn.out_proj.bias"],
            training=False, need_weights=False, attn_mask=mask)
        x = x + a.transpose(0, 1)
        h = F.layer_norm(x, [w], p["ln_2.weight"], p["ln_2.bias"], 1e-5)
        h = F.linear(h, p["mlp.c_fc.weight"], p["mlp.c_fc.bias"])
        h = F.gelu(h) if self.act == "gelu" else h * torch.sigmoid(1.702 * h)
        return x + F.linear(h, p["mlp.c_proj.weight"], p["mlp.c_proj.bias"])


def text_tower(width, layers, heads, context, joint, act, mlp=0):
    blocks = [Block(f"transformer.resblocks.{i}.", width, heads, mlp or 4 * width, act) for i in range(layers)]
    positions = formula("positional_embedding", [context, width])
    gain, bias = formula("ln_final.weight", [width]), formula("ln_final.bias", [width])
    projection = formula("text_projection", [width, joint])

    def run(emb, read):
        x = emb + positions
        for b in blocks:
            x = b(x, True)
        x = x[torch.arange(len(read)), torch.tensor(read)]
        return F.layer_norm(x, [width], gain, bias, 1e-5) @ projection

    return run


def vision_tower(width, layers, heads, patch, image, joint, act, mlp=0):
    n = (image // patch) ** 2
    blocks = [Block(f"visual.transformer.resblocks.{i}.", width, heads, mlp or 4 * width, act) for i in range(layers)]
    conv = formula("visual.conv1.weight", [width, 3, patch, patch])
    token, positions = formula("visual.class_embedding", [width]), formula("visual.positional_embedding", [n + 1, width])
    norm = {s: (formula(f"visual.{s}.weight", [width]), formula(f"visual.{s}.bias", [width])) for s in ("ln_pre", "ln_post")}
    projection = formula("visual.proj", [width, joint])

    def run(pixels):
        x = F.conv2d(pixels, conv, stride=patch).flatten(2).transpose(1, 2)
        x = torch.cat([token.expand(len(x), 1, width), x], 1) + positions
        x = F.layer_norm(x, [width], *norm["ln_pre"], 1e-5)
        for b in blocks:
            x = b(x, False)
        x = F.layer_norm(x, [width], *norm["ln_post"], 1e-5) @ projection
        return x[:, 0], x[:, 1:]

    return run


def classes(n):
    return [[1000 + 17 * c + j for j in range(1 + c * 7 % 5)] + [STOP, EOT] for c in range(n)]


def sequences(ctx, ids, after, context, width):
    """[SOS ctx name . EOT pad...] for every class, and where each is read."""
    rows, read = [], []
    for s in ids:
        x = torch.cat([embed([SOS], width), ctx, embed(s, width)])
        read.append(len(x) - 1 + after)
        rows.append(torch.cat([x, embed([PAD] * (context - len(x)), width)]))
    return torch.stack(rows), read


def text_case(name, act, ts, afters, count, width=64, layers=3, heads=2, joint=48, every=1, mlp=0):
    tower, ids = text_tower(width, layers, heads, 77, joint, act, mlp), classes(count)
    cotangent = formula("cotangent", [count, joint])
    case = {"name": name, "activation": act, "mlp": mlp, "classes": count, "t": ts, "after": afters, "every": every, "features": [], "grads": []}
    for i, (t, after) in enumerate(zip(ts, afters)):
        ctx = formula(f"ctx{i}", [t, width]).requires_grad_()
        f = tower(*sequences(ctx, ids, after, 77, width))
        (f * cotangent).sum().backward()
        case["features"].append(numbers(f, every))
        case["grads"].append(numbers(ctx.grad, every))
    return case


def vision_case(name, act, patch, image, batch, width=64, layers=3, heads=2, joint=48, every=1, mlp=0):
    tower = vision_tower(width, layers, heads, patch, image, joint, act, mlp)
    joint_f, patches = tower(formula("pixels", [batch, 3, image, image]))
    return {"name": name, "activation": act, "mlp": mlp, "patch": patch, "image": image, "batch": batch, "every": every,
            "joint": numbers(joint_f, every), "patches": numbers(patches, every * every)}


def sentence_case():
    """Whole sentences, read at their last token."""
    ids = [[SOS, 320, 1125, 539, 320] + s for s in classes(4)]
    emb = torch.stack([torch.cat([embed(s, 64), embed([PAD] * (77 - len(s)), 64)]) for s in ids])
    return {"ids": ids, "features": numbers(text_tower(64, 3, 2, 77, 48, "quick_gelu")(emb, [len(s) - 1 for s in ids]), 1)}


def numbers(x, every):
    return [float(f"{v:.8g}") for v in x.detach().flatten()[::every].tolist()]


def write(name, data):
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, name), "w") as f:
        json.dump(data, f, separators=(",", ":"))
        f.write("\n")


def main():
    write("golden.json", {
        "text": [
            text_case("T=4", "quick_gelu", [4], [0], 6),
            text_case("T=16 gelu", "gelu", [16], [0], 9),
            text_case("two prompts, read behind EOT", "quick_gelu", [7, 3], [0, 4], 5),
            text_case("feed-forward of 37", "quick_gelu", [4], [0], 6, mlp=37),
        ],
        "vision": [vision_case("patch 16", "quick_gelu", 16, 48, 2), vision_case("patch 32 gelu", "gelu", 32, 64, 2),
                   vision_case("feed-forward of 37", "quick_gelu", 16, 32, 2, mlp=37)],
        "sentences": sentence_case(),
    })
    if sys.argv[1:] == ["full"]:
        b = dict(width=768, layers=12, heads=12, joint=512, every=7)
        write("full.json", {
            "text": [text_case("ViT-B", "quick_gelu", [16], [0], 3, width=512, layers=12, heads=8, joint=512, every=29)],
            "vision": [vision_case("ViT-B/16", "quick_gelu", 16, 224, 1, **b), vision_case("ViT-B/32", "quick_gelu", 32, 224, 1, **b)],
        })


if __name__ == "__main__":
    main()
