"""Golden numbers of one contrastive training step: loss and gradient of every weight of a small CLIP.

Writes federation/pretrain/testdata/step.safetensors. The model is written out here in torch operators, in float64, from
the formulas of Radford et al. 2021 (towers, symmetric loss) and Yang et al. 2022 (several positives per row); weights and
inputs follow the formulas below, which the Go test repeats.
"""
import json
import math
import pathlib
import struct

import torch

torch.set_default_dtype(torch.float64)
B, L, VOCAB, CONTEXT, JOINT = 5, 6, 11, 77, 6
TEXT = dict(width=8, layers=2, heads=2)
IMAGE = dict(width=12, layers=2, heads=3, patch=4, size=8)
CAPTIONS = [0, 1, 0, 2, 1]  # equal numbers are equal captions
TOKENS = [[9, 1, 2, 10, 0, 0], [9, 3, 10, 0, 0, 0], [9, 1, 2, 10, 0, 0], [9, 4, 5, 6, 7, 10], [9, 3, 10, 0, 0, 0]]
END = [3, 2, 3, 5, 2]


def formula(name, shape, base=0.0, size=0.3):
    """base + size sin(0.7 i + s), s being the sum of the name's bytes."""
    n = math.prod(shape)
    s = sum(name.encode())
    return (base + size * torch.sin(0.7 * torch.arange(n) + s)).reshape(shape)


def shapes():
    w, iw = TEXT["width"], IMAGE["width"]
    out = {"token_embedding.weight": (VOCAB, w), "positional_embedding": (CONTEXT, w), "ln_final.weight": (w,),
           "ln_final.bias": (w,), "text_projection": (w, JOINT), "logit_scale": (),
           "visual.conv1.weight": (iw, 3, IMAGE["patch"], IMAGE["patch"]), "visual.class_embedding": (iw,),
           "visual.positional_embedding": (1 + (IMAGE["size"] // IMAGE["patch"]) ** 2, iw), "visual.ln_pre.weight": (iw,),
           "visual.ln_pre.bias": (iw,), "visual.ln_post.weight": (iw,), "visual.ln_post.bias": (iw,), "visual.proj": (iw, JOINT)}
    for prefix, width, layers in (("", w, TEXT["layers"]), ("visual.", iw, IMAGE["layers"])):
        for i in range(layers):
            p = f"{prefix}transformer.resblocks.{i}."
            for ln in ("ln_1", "ln_2"):
                out[p + ln + ".weight"], out[p + ln + ".bias"] = (width,), (width,)
            for name, o, n in (("attn.in_proj_", 3 * width, width), ("attn.out_proj.", width, width),
                               ("mlp.c_fc.", 4 * width, width), ("mlp.c_proj.", width, 4 * width)):
                out[p + name + "weight"], out[p + name + "bias"] = (o, n), (o,)
    return out


def base(name):
    if name == "logit_scale":
        return 2.0
    gain = name.endswith(".weight") and ("ln_" in name)
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


def loss_of(w):
    f = image_features(w, formula("pixels", (B, 3, IMAGE["size"], IMAGE["size"]), size=1.0))
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


if __name__ == "__main__":
    # weights are float32 in the engine, so their formula is rounded before anything is computed from it
    weights = {n: formula(n, s, base(n)).float().double().requires_grad_() for n, s in shapes().items()}
    loss = loss_of(weights)
    loss.backward()
    golden = {"grad/" + n: p.grad for n, p in weights.items()}
    # only the positions in use have a gradient: the rest of the table is zero and not worth storing
    golden["grad/positional_embedding"] = golden["grad/positional_embedding"][:L]
    golden["loss"] = loss.detach().reshape(1)
    root = pathlib.Path(__file__).resolve().parents[2]
    folder = root / "federation" / "pretrain" / "testdata"
    folder.mkdir(exist_ok=True)
    write(folder / "step.safetensors", golden)
    print(f"loss {loss.item():.6f}")
