"""Federated prompt learners of the years 2024 and 2025: DP-FPL, FedAPT, FedMVP. See methods.py."""
import torch

from methods import C, CLASSES, DASSL, F, PLAIN, SCALE, W, Method, Summed, head, text, unit, values, vision


class Averaged(Method):
    """Clients count once each in the mean, or as often as they have examples."""

    def merge(self, r, server, ups):
        if self.o["weighting"] == "uniform":
            for u in ups:
                u.n = 1
        super().merge(r, server, ups)


class DPFPL(Averaged):
    """A power iteration in each step; gradients of the factors U and v by autograd, from U v + (local - U v)."""
    shared, private = ["global"], ["local"]
    defaults = {"tokens": 16, "position": "end", "rank": 8, "clip": 10.0, "noise": 0.0, "noisy": "factors", "weighting": "uniform"}

    def init(self, name, client):
        return (300, 0.6, self.o["tokens"], W) if name == "global" else (310 + client, 0.5, self.o["tokens"], W)

    def scores(self, env, ctx):
        return SCALE * env.x @ text(ctx, env.backbone, 0, self.o["position"]).T

    def logits(self, env, p):
        return self.scores(env, p["global"] + p["local"])

    def loss(self, env, p):
        env.now = {n: t.detach() for n, t in p.items()}
        return super().loss(env, p)

    def normal(self, env, *shape):
        return torch.tensor([env.rand.normal() for _ in range(torch.Size(shape).numel())]).double().reshape(shape)

    def released(self, env, g, noisy=True):
        o = self.o
        if o["clip"] and g.norm() > o["clip"]:
            g = g * o["clip"] / g.norm()
        return g + o["noise"] * o["clip"] * self.normal(env, *g.shape) if noisy and o["noise"] else g

    def adjust(self, env, grads):
        o, local = self.o, env.now["local"]
        columns = lambda m: torch.stack(gram_schmidt(list(m.T)), 1)
        u = columns(local @ self.normal(env, W, min(o["rank"], *local.shape)))
        v = columns(local.T @ u).T
        rest = local - u @ v
        u.requires_grad_(), v.requires_grad_()
        loss = F.cross_entropy(self.scores(env, env.now["global"] + u @ v + rest), env.y)
        by_u, by_v = (self.released(env, g) for g in torch.autograd.grad(loss, [u, v]))
        u, v = u.detach(), v.detach()
        grads["local"].copy_(by_u @ v + u @ by_v - u @ u.T @ by_u @ v)
        grads["global"].copy_(self.released(env, grads["global"], o["noisy"] == "all"))


def gram_schmidt(columns):
    out = []
    for c in columns:
        for b in out:
            c = c - (b @ c) * b
        out.append(c / c.norm())
    return out


class FedAPT(Summed, Averaged):
    """Clients 0 and 1 are of the domain east, client 2 of west."""
    shared = ["ctx", "query"]
    defaults = {"tokens": 16, "position": "end", "class_specific": False, "domains": 0, "weight": 1.0, "temp": 0.01, "assign": "prompts",
                "weighting": "uniform"}

    def count(self):
        return self.o["domains"] or 3

    def init(self, name, client):
        if name == "query":
            return 330, 0.3, self.count(), 5
        return 320, 0.6, *([C] if self.o["class_specific"] else []), self.o["tokens"], W

    def start(self, server):
        server.down["apt/keys"] = 340, 0.9, self.count(), self.o["tokens"], W
        server.down["apt/domains"] = torch.tensor([0.0, 0.0, 1.0] if self.o["domains"] else [0.0, 1.0, 2.0]).double()

    def scores(self, env, p, x, key):
        ctx = p["ctx"] * (1 + key)
        if not self.o["class_specific"]:
            return SCALE * x @ text(ctx, env.backbone, 0, self.o["position"]).T
        return torch.stack([SCALE * x @ text(ctx[c], env.backbone, 0, self.o["position"])[c] for c in range(C)], -1)

    def query(self, env, p):
        return 10 * env.x @ p["query"].T

    def logits(self, env, p):
        q, keys, out = self.query(env, p), env.down["apt/keys"], []
        a = ((q - q.mean(1, keepdim=True)) / q.std(1, keepdim=True) / self.o["temp"]).softmax(1)
        for x, w in zip(env.x, a):
            if self.o["assign"] == "prompts":
                out.append(self.scores(env, p, x, torch.einsum("d,dtw->tw", w, keys)))
            else:
                out.append(sum(w[d] * self.scores(env, p, x, keys[d]) for d in range(len(w))))
        return torch.stack(out)

    def terms(self, env, p):
        d = int(env.down["apt/domains"][env.k])
        ce = F.cross_entropy(self.scores(env, p, env.x, env.down["apt/keys"][d]), env.y)
        return {"cross entropy": ce, "domain": self.o["weight"] * F.cross_entropy(self.query(env, p), torch.full_like(env.y, d))}


class FedMVP(Summed, Averaged):
    """The attention by torch's own, one image at a time."""
    defaults = {"tokens": 4, "heads": 4, "mult": 4, "alpha": 10.0, "attributes": {}, "templates": [],
                "lora_round": 0, "rank": 8, "weighting": "uniform"}
    V, DIM, M = 4, 5, 2

    def __init__(self, o):
        super().__init__(o)
        self.shared = list(self.shapes())

    def shapes(self):
        v, wide, out = self.V, self.V * self.o["mult"], {}
        for name, o, i in (("proj", v, self.DIM), ("q", v, v), ("k", v, v), ("v", v, v), ("o", v, v), ("ff/in", 2 * wide, v), ("ff/out", v, wide)):
            out |= {f"former/{name}/w": (o, i), f"former/{name}/b": (o,)}
        for name in ("norm", "norm_kv", "ff/norm"):
            out |= {f"former/{name}/gain": (v,), f"former/{name}/bias": (v,)}
        for name in "qkv" if self.o["lora_round"] else "":
            out |= {f"lora/{name}/a": (v, self.o["rank"]), f"lora/{name}/b": (self.o["rank"], v)}
        return out

    def init(self, name, client):
        return 400 + self.shared.index(name), 0.7, *self.shapes()[name]

    def on(self, r):
        return torch.tensor([float(r + 1 >= self.o["lora_round"])]).double()

    def start(self, server):
        if self.o["lora_round"]:
            server.down["mvp/lora"] = self.on(0)

    def texts(self, env):
        o, out = self.o, []
        for i in range(len(o["attributes"].get("ant", o["templates"]))):
            t = [f"a photo of a {c} which has {o['attributes'][c][i]}." if o["attributes"] else o["templates"][i].replace("{}", c) for c in CLASSES]
            s = torch.stack([values(5 + sum(x.encode()), 1, W) for x in t])
            out.append(unit(head(torch.tanh(s), (), env.backbone, 4, W)))
        return torch.stack(out)

    def image(self, env, p):
        v, o = self.V, self.o
        changed = lambda x, n: x + env.down["mvp/lora"] * (x @ p[f"lora/{n}/a"] @ p[f"lora/{n}/b"]) if o["lora_round"] else x
        norm = lambda x, n: F.layer_norm(x, (v,), p[f"former/{n}/gain"], p[f"former/{n}/bias"])
        lin = lambda x, n: F.linear(x, p[f"former/{n}/w"], p[f"former/{n}/b"])
        a = lin(self.texts(env).reshape(-1, self.DIM), "proj")
        keys, vals = norm(changed(a, "k"), "norm_kv"), changed(a, "v")
        out = []
        for x in env.pixels:
            e = x.reshape(self.M, 6) @ values(34, 1, 6, v)
            q = norm(changed(e, "q"), "norm")
            h, _ = F.multi_head_attention_forward(
                q[:, None], keys[:, None], vals[:, None], v, o["heads"], torch.cat([p[f"former/{n}/w"] for n in "qkv"]),
                torch.cat([p[f"former/{n}/b"] for n in "qkv"]), None, None, False, 0.0, p["former/o/w"], p["former/o/b"], need_weights=False)
            h = h[:, 0]
            up, gate = lin(norm(h, "ff/norm"), "ff/in").chunk(2, -1)
            h = lin(up * F.gelu(gate), "ff/out") + h
            tokens = F.adaptive_avg_pool1d(h.T[None], o["tokens"])[0].T
            out.append(vision(x[None], env.backbone, tokens)[0])
        return torch.stack(out)

    def logits(self, env, p):
        x = self.image(env, p)
        return torch.stack([SCALE * x @ t.T for t in self.texts(env)]).mean(0)

    def adjust(self, env, grads):
        on = self.o["lora_round"] and env.r + 1 >= self.o["lora_round"]
        env.frozen = [n for n in self.shared if n.startswith("lora/") != bool(on)]

    def terms(self, env, p):
        plain = vision(env.pixels.flip(3), env.backbone)
        return {"cross entropy": F.cross_entropy(self.logits(env, p), env.y),
                "consistency": self.o["alpha"] * (1 - F.cosine_similarity(self.image(env, p), plain).mean())}

    def merge(self, r, server, ups):
        super().merge(r, server, ups)
        if self.o["lora_round"]:
            server.down["mvp/lora"] = self.on(r + 1)


METHODS = {"dpfpl": DPFPL, "fedapt": FedAPT, "fedmvp": FedMVP}
TRAITS = {"ant": ["six legs", "feelers"], "bee": ["wings", "a sting"], "cat": ["whiskers", "a tail"], "dog": ["a snout", "paws"]}
WRAPPERS = {}
ALIKE, TERMS = {"alike": True}, {"terms": True}
CASES = [
    ("dpfpl", [], {"tokens": 3, "rank": 2}, DASSL),
    ("dpfpl", [], {"tokens": 4, "rank": 2, "clip": 0.1, "noise": 0.5, "steps": 3}, PLAIN),
    ("dpfpl", [], {"tokens": 4, "rank": 3, "clip": 0.2, "noise": 0.3, "noisy": "all", "position": "middle"}, DASSL),
    ("dpfpl", [], {"tokens": 4, "rank": 2, "clip": 0.0, "weighting": "examples"}, PLAIN),
    ("dpfpl", ["fedprox"], {"tokens": 3, "rank": 1, "clip": 0.3, "noise": 0.1, "mu": 2.0}, {**DASSL, "epochs": 2}),
    ("fedapt", [], {"tokens": 3, "temp": 0.3}, DASSL, {**ALIKE, **TERMS}),
    ("fedapt", [], {"tokens": 2, "domains": 2, "class_specific": True, "assign": "scores", "temp": 0.5, "weight": 0.4, "position": "middle"}, PLAIN, ALIKE),
    ("fedapt", ["fedprox"], {"tokens": 2, "domains": 2, "assign": "scores", "weighting": "examples", "mu": 1.5}, {**DASSL, "epochs": 2}, ALIKE),
    ("fedmvp", [], {"heads": 2, "mult": 1, "attributes": TRAITS}, PLAIN, {**ALIKE, **TERMS}),
    ("fedmvp", [], {"heads": 4, "mult": 2, "tokens": 1, "templates": ["a {}", "the {}."], "alpha": 2.0, "lora_round": 2, "rank": 3}, DASSL, ALIKE),
    ("fedmvp", ["fedprox"], {"heads": 1, "mult": 1, "tokens": 2, "templates": ["a {}", "{}"], "weighting": "examples", "mu": 1.5}, DASSL, ALIKE),
]
