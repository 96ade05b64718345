"""Recomputes every number of a trace in PyTorch, from nothing but the trace and the Hugging Face checkpoint behind its bundle.

    promptfed convert HF_FOLDER --out BUNDLE
    promptfed trace CONFIG --rounds 2 --out TRACE
    python3 tools/golden/trace.py TRACE HF_FOLDER [HF_FOLDER ...]

Several folders are matched to the trace's bundles in order. Prints the largest error by kind of number, relative to the
largest value of its tensor, and fails above 1e-4. Covers coop, promptfl, fedpha, fedappr and the wrapper fedprox.
"""
import json
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def safetensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        kind = {"F32": np.float32, "I64": np.int64}[t["dtype"]]
        lo, hi = t["data_offsets"]
        out[name] = torch.from_numpy(np.frombuffer(raw[8 + n + lo:8 + n + hi], kind).reshape(t["shape"]).copy())
    return out


class Text:
    """CLIP's text tower, plainly: every class is one whole sequence, read at its last position."""

    def __init__(self, folder, tokens, sos):
        self.w = safetensors(folder + "/model.safetensors")
        c = json.load(open(folder + "/config.json"))["text_config"]
        self.heads, self.layers, self.act = c["num_attention_heads"], c["num_hidden_layers"], c["hidden_act"]
        self.tokens, self.sos = tokens, sos

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def lin(self, x, name):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def sequence(self, x, read):
        x = x + self.w["text_model.embeddings.position_embedding.weight"][: len(x)]
        mask = torch.full((len(x), len(x)), float("-inf")).triu(1)
        for i in range(self.layers):
            p = "text_model.encoder.layers.%d." % i
            y = self.norm(x, p + "layer_norm1")
            q, k, v = (self.lin(y, p + "self_attn.%s_proj" % n).view(len(x), self.heads, -1).transpose(0, 1) for n in "qkv")
            a = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + mask).softmax(-1) @ v
            x = x + self.lin(a.transpose(0, 1).reshape(len(x), -1), p + "self_attn.out_proj")
            y = self.lin(self.norm(x, p + "layer_norm2"), p + "mlp.fc1")
            y = y * torch.sigmoid(1.702 * y) if self.act == "quick_gelu" else F.gelu(y)
            x = x + self.lin(y, p + "mlp.fc2")
        return self.norm(x, "text_model.final_layer_norm")[read] @ self.w["text_projection.weight"].T

    def __call__(self, ctx, after=0):
        e = self.w["text_model.embeddings.token_embedding.weight"]
        rows = []
        for ids in self.tokens:
            x = torch.cat([e[[self.sos]], ctx, e[ids], e[[0] * after]])
            rows.append(self.sequence(x, len(x) - 1))
        return F.normalize(torch.stack(rows), dim=-1)


def projector(g, kind, ratio):
    u, s, vt = torch.linalg.svd(g.double(), full_matrices=False)
    if kind == "code":
        v = vt[int(len(s) * (1 - ratio)):]
        return (v.T @ v).float()
    d = g.shape[1]
    v = vt[:min(int((s > s[0] * 1e-6).sum()), d - int((1 - ratio) * d + 1e-9))]
    return (torch.eye(d) - v.T @ v).float()


def main(folder, checkpoints):
    info = json.load(open(folder + "/trace.json"))
    t = safetensors(folder + "/trace.safetensors")
    c = info["config"]
    o, train = c["options"], c["train"]
    prox = o.get("fedprox", {}).get("mu", o.get("mu", 0.0)) if "fedprox" in c["with"] else 0.0
    texts = {b["name"]: (Text(f, b["tokens"], b["sos"]), b["logit_scale"]) for b, f in zip(info["bundles"], checkpoints)}
    worst = {}

    def check(kind, got, name):
        want = t[name].float()
        err = ((got - want).abs().max() / max(1e-6, want.abs().max())).item()
        worst[kind] = max(worst.get(kind, 0.0), err)
        if not err < 1e-4:
            print("%s is off by %.2g" % (name, err))

    def subset(prefix):
        return {k[len(prefix):]: v for k, v in t.items() if k.startswith(prefix)}

    def judge(ctx, average, w1, w2):
        if o["disc_norm"] == "unit":
            ctx = ctx / average.pow(2).mean().sqrt()
        x = ctx.mean(-2, keepdim=True) if o["disc_input"] == "mean" else ctx
        return torch.sigmoid(torch.relu(x @ w1) @ w2)

    def loss(k, r, p, received, step, down, ce, text):
        if c["method"] == "fedpha":
            longest = max([o["global_tokens"]] + o["local_tokens"])
            read = lambda x: text(x, longest - len(x) if o["eot"] == "longest" else 0)
            q = t[step + "draw/projector"]
            if o["projector"] in ("code", "exact-null") and o["svd_every"] == "step":
                check("projector", projector(p["global"].detach(), o["projector"], o["ratio"]), step + "draw/projector")
            tg, tl, tp = read(p["global"]), read(p["local"]), read(p["local"] @ q)
            pull = ((tl - tp) ** 2).mean() if o["pull"] == "mean" else ((tl - tp) ** 2).sum(-1).mean()
            push = (torch.relu(o["alpha"] - (tl - tg).norm()) if o["push"] == "scalar"
                    else torch.relu(o["alpha"] - (tl - tg).norm(dim=-1)).mean())
            return ce(tl) + ce(tg) + pull + push
        total = ce(text(p["ctx"]))
        if c["method"] == "fedappr":
            if r + 1 > o["warmup"]:
                total = total + o["lambda_a"] * -torch.log(judge(p["ctx"], received["ctx"], down["fedappr/w1"], down["fedappr/w2"])).mean()
            total = total + o["lambda_r"] * ((p["ctx"] - received["ctx"]) ** 2).sum()
        return total

    pool, private = [], {"local"} if c["method"] == "fedpha" else {"ctx"} if c["method"] == "coop" else set()
    start = subset("init/")
    disc = None
    for r in range(train["rounds"]):
        ups, total = {}, 0
        for k, client in enumerate(info["clients"]):
            at = "r%d/c%d/" % (r, k)
            if not subset(at + "begin/"):
                continue
            text, scale = texts[client["bundle"]]
            p = {n: v.clone() for n, v in subset(at + "begin/").items()}
            for n, v in start.items():
                if o.get("start") != "own":
                    check("begin", p[n], at + "begin/" + n)
                    check("begin", v, at + "begin/" + n)
            received = {n: v.clone() for n, v in start.items()}
            velocity = {}
            for s in [s for s in info["steps"] if s["round"] == r and s["client"] == k]:
                step = at + "s%d/" % s["step"]
                for v in p.values():
                    v.requires_grad_(True)
                image, label = t[step + "image"], t[step + "label"]
                assert (image.norm(dim=-1) - 1).abs().max() < 1e-5, "image rows are not unit rows"
                ce = lambda tf: F.cross_entropy(scale * image @ tf.T, label)
                value = loss(k, r, p, received, step, subset(at + "down/"), ce, text)
                if prox:
                    value = value + prox / 2 * sum(((p[n] - received[n]) ** 2).sum() for n in start)
                grads = dict(zip(p, torch.autograd.grad(value, list(p.values()))))
                check("loss", value.detach().reshape(1), step + "loss")
                for n in p:
                    check("gradient", grads[n], step + "grad/" + n)
                    g = grads[n] + train["weight_decay"] * p[n].detach()
                    velocity[n] = g if n not in velocity else train["momentum"] * velocity[n] + g
                    p[n] = (p[n] - s["lr"] * (velocity[n] if train["momentum"] else g)).detach()
                    check("after", p[n], step + "after/" + n)
            for n in start:
                check("upload", p[n], at + "upload/" + n)
            ups[k] = {n: p[n] for n in start}
            total += client["examples"]
            client["own"] = {n: v.detach() for n, v in p.items()}
        merged = {n: sum(info["clients"][k]["examples"] / total * u[n] for k, u in ups.items()) for n in start}
        for n in merged:
            check("merged", merged[n], "r%d/merged/%s" % (r, n))
        if c["method"] == "fedappr":
            old = {n: v.clone().requires_grad_(True) for n, v in subset("r%d/c%d/down/" % (r, next(iter(ups)))).items()}
            if r + 1 > o["warmup"] and o["lambda_a"]:
                pool.append(merged["ctx"])
                w1, w2 = old["fedappr/w1"], old["fedappr/w2"]
                opt = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[o["disc_optim"]]([w1, w2], lr=o["disc_lr"])
                for _ in range(o["disc_steps"]):
                    opt.zero_grad()
                    d = (-torch.log(judge(torch.stack(pool), pool[-1], w1, w2)).mean()
                         - torch.log(1 - judge(torch.stack([u["ctx"] for u in ups.values()]), pool[-1], w1, w2)).mean())
                    d.backward()
                    opt.step()
            for n in old:
                check("discriminator", old[n].detach(), "r%d/down/%s" % (r, n))
        for k, client in enumerate(info["clients"]):
            at = "r%d/c%d/eval/" % (r, k)
            if "own" not in client or at + "logits" not in t:
                continue
            text, scale = texts[client["bundle"]]
            p = client["own"]
            ctx = p["local"] if c["method"] == "fedpha" else merged["ctx"] if c["method"] == "promptfl" else p["ctx"]
            after = max([o["global_tokens"]] + o["local_tokens"]) - len(ctx) if o.get("eot") == "longest" else 0
            with torch.no_grad():
                check("test scores", scale * t[at + "image"] @ text(ctx, after).T, at + "logits")
        start = merged
    for kind, err in worst.items():
        print("%-14s largest relative error %.1e" % (kind, err))
    sys.exit(any(not e < 1e-4 for e in worst.values()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
