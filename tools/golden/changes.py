"""Writes models/clip/testdata/changes.json: CLIP's towers with deep text prompts, with low-rank changes and adapters
inside, and with a text prompt for each image, in PyTorch in double precision, with the gradients of all of these by
autograd. Every class has a whole sequence of its own here; nothing is shared.

Deep prompts take the place of the first prompt tokens at the input of a later block (Khattak et al. 2023); a low-rank
change adds x A B to a linear map (Hu et al. 2022); an adapter adds W2 relu(W1 h + b1) + b2 of the block's normalised
input to the block's output, or of the feed-forward layers' output to itself (Houlsby et al. 2019). Weights come from the
formula of towers.py.

    python3 tools/golden/changes.py
"""
import torch
import torch.nn.functional as F

from towers import Block, classes, formula, numbers, sequences, write

WIDTH, HEADS, LAYERS, JOINT, PATCH, IMAGE, BATCH = 32, 2, 3, 24, 16, 32, 2
MLP = 4 * WIDTH


class Rescaled(torch.autograd.Function):
    """scale·f as a value, with the gradient of f by itself, and the other way round for what goes in."""

    @staticmethod
    def forward(ctx, x, value, slope):
        ctx.slope = slope
        return x * value

    @staticmethod
    def backward(ctx, d):
        return d * ctx.slope, None, None


class Changed:
    """A block with changes, from its parts."""

    def __init__(self, name, index, case, p):
        self.p, self.heads = Block(name, WIDTH, HEADS, MLP, "quick_gelu").p, HEADS
        self.ranks = [(l["map"], p[f"rank{k}/a"], p[f"rank{k}/b"]) for k, l in enumerate(case["ranks"]) if l["block"] == index]
        self.adapters = [(a, [(p[f"adapter{k}/w{i}"], p[f"adapter{k}/b{i}"]) for i in range(len(a["sizes"]) - 1)])
                         for k, a in enumerate(case["adapters"]) if a["block"] == index]

    def map(self, name, x, w, b):
        y = F.linear(x, w, b)
        for m, lo, hi in self.ranks:
            if m == name:
                y = y + x @ lo @ hi
        return y

    def adapter(self, place, h):
        out = 0
        for a, layers in self.adapters:
            if a["place"] != place:
                continue
            x = Rescaled.apply(h, 1.0, a["scale"]) if a["rescale"] else h
            for i, (w, b) in enumerate(layers):
                x = F.linear(x.relu() if i else x, w, b)
            out = out + (Rescaled.apply(x, a["scale"], 1.0) if a["rescale"] else a["scale"] * x)
        return out

    def forward(self, x, causal):
        p, (b, n, w) = self.p, x.shape
        h = F.layer_norm(x, [w], p["ln_1.weight"], p["ln_1.bias"], 1e-5)
        ws, bs = p["attn.in_proj_weight"].chunk(3), p["attn.in_proj_bias"].chunk(3)
        q, k, v = [self.map(m, h, ws[i], bs[i]).reshape(b, n, self.heads, -1).transpose(1, 2) for i, m in enumerate("qkv")]
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        if causal:
            scores = scores + torch.full((n, n), float("-inf"), dtype=x.dtype).triu(1)
        a = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, w)
        y = x + self.map("out", a, p["attn.out_proj.weight"], p["attn.out_proj.bias"])
        u = self.map("up", F.layer_norm(y, [w], p["ln_2.weight"], p["ln_2.bias"], 1e-5), p["mlp.c_fc.weight"], p["mlp.c_fc.bias"])
        z = self.map("down", u * torch.sigmoid(1.702 * u), p["mlp.c_proj.weight"], p["mlp.c_proj.bias"])
        return y + z + self.adapter("behind", z) + self.adapter("beside", h)


def head(case, p, x, norm, projection):
    x = F.layer_norm(x, [WIDTH], formula(norm + ".weight", [WIDTH]), formula(norm + ".bias", [WIDTH]), 1e-5)
    y = x @ formula(projection, [WIDTH, JOINT])
    for k, l in enumerate(case["ranks"]):
        if l["map"] == "head":
            y = y + x @ p[f"rank{k}/a"] @ p[f"rank{k}/b"]
    return y


def text(case, p, ctx, ids):
    emb, read = sequences(ctx, ids, case["after"], 77, WIDTH)
    positions = formula("positional_embedding", [77, WIDTH])
    if case["bare"]:
        positions = torch.cat([positions[:1], 0 * ctx.detach(), positions[1 + len(ctx):]])
    x = emb + positions
    for i in range(LAYERS):
        d = p.get(f"deep{i - 1}")
        if d is not None:
            x = torch.cat([x[:, :1], d.expand(len(x), *d.shape), x[:, 1 + len(d):]], 1)
        x = Changed(f"transformer.resblocks.{i}.", i, case, p).forward(x, True)
    return head(case, p, x[torch.arange(len(read)), torch.tensor(read)], "ln_final", "text_projection")


def image(case, p):
    n = (IMAGE // PATCH) ** 2
    x = F.conv2d(formula("pixels", [BATCH, 3, IMAGE, IMAGE]), formula("visual.conv1.weight", [WIDTH, 3, PATCH, PATCH]), stride=PATCH)
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([formula("visual.class_embedding", [WIDTH]).expand(len(x), 1, WIDTH), x], 1)
    x = x + formula("visual.positional_embedding", [n + 1, WIDTH])
    x = F.layer_norm(x, [WIDTH], formula("visual.ln_pre.weight", [WIDTH]), formula("visual.ln_pre.bias", [WIDTH]), 1e-5)
    for i in range(LAYERS):
        x = Changed(f"visual.transformer.resblocks.{i}.", i, case, p).forward(x, False)
    return head(case, p, x[:, 0], "visual.ln_post", "visual.proj")


def sizes(m):
    return {"up": (WIDTH, MLP), "down": (MLP, WIDTH), "head": (WIDTH, JOINT)}.get(m, (WIDTH, WIDTH))


def case(name, tower="text", classes_=5, t=3, after=0, deep=(), ranks=(), adapters=(), images=0, every=1, bare=False):
    c = {"name": name, "tower": tower, "classes": classes_, "after": after, "bare": bare, "every": every, "inputs": {},
         "ranks": [{"block": b, "map": m} for b, m in ranks],
         "adapters": [dict(zip(("block", "place", "scale", "rescale", "sizes"), a)) for a in adapters]}
    if tower == "text":
        c["inputs"]["ctx"] = [images, t, WIDTH] if images else [t, WIDTH]
    for i, n in enumerate(deep):
        if n:
            c["inputs"][f"deep{i}"] = [n, WIDTH]
    for k, l in enumerate(c["ranks"]):
        m, n = sizes(l["map"])
        c["inputs"].update({f"rank{k}/a": [m, 2], f"rank{k}/b": [2, n]})
    for k, a in enumerate(c["adapters"]):
        for i, (m, n) in enumerate(zip(a["sizes"], a["sizes"][1:])):
            c["inputs"].update({f"adapter{k}/w{i}": [n, m], f"adapter{k}/b{i}": [n]})
    p = {k: formula(k, s).requires_grad_() for k, s in c["inputs"].items()}
    if tower == "text":
        ids = classes(classes_)
        f = torch.cat([text(c, p, x, ids) for x in p["ctx"]]) if images else text(c, p, p["ctx"], ids)
    else:
        f = image(c, p)
    (f * formula("cotangent", list(f.shape))).sum().backward()
    return {**c, "features": numbers(f, every), "grads": {k: numbers(v.grad, every) for k, v in p.items()}}


EVERYWHERE = [(b, m) for b in range(LAYERS) for m in ("q", "k", "v", "out", "up", "down")] + [(0, "head")]

if __name__ == "__main__":
    write("changes.json", [
        case("deep prompts", deep=[3, 3]),
        case("deep prompts, fewer tokens than the first, many classes", classes_=30, t=4, deep=[2, 0], every=7),
        case("deep prompts at the last block, read behind EOT", after=2, deep=[0, 1]),
        case("a prompt without positions", deep=[3], bare=True, every=3),
        case("low rank everywhere", ranks=EVERYWHERE, every=7),
        case("low rank everywhere, many classes", classes_=30, ranks=EVERYWHERE, every=29),
        case("two on one map", ranks=[(1, "v"), (1, "v"), (2, "q")], every=3),
        case("adapters", adapters=[(0, "beside", 0.5, False, [WIDTH, 4, WIDTH]), (2, "beside", 0.5, False, [WIDTH, 8, 8, WIDTH]),
                                   (1, "behind", 2, False, [WIDTH, 3, WIDTH])], every=3),
        case("rescaled adapters", adapters=[(1, "beside", 0.1, True, [WIDTH, 4, WIDTH]), (2, "behind", 0.1, True, [WIDTH, 4, WIDTH])], every=3),
        case("deep prompts, low rank and adapters", deep=[3, 2], ranks=[(0, "k"), (2, "up")],
             adapters=[(1, "beside", 1, False, [WIDTH, 4, WIDTH])], every=3),
        case("a prompt for each image", images=3, every=5),
        case("a prompt for each image, many classes", images=2, classes_=30, t=2, every=17),
        case("a prompt for each image, low rank", images=2, ranks=[(0, "q"), (1, "down"), (2, "v")], every=5),
        case("images, low rank everywhere", tower="vision", ranks=EVERYWHERE, every=7),
        case("images, adapters", tower="vision", adapters=[(0, "beside", 0.5, False, [WIDTH, 8, 8, WIDTH]),
                                                           (2, "behind", 0.5, True, [WIDTH, 4, WIDTH])], every=3),
    ])
