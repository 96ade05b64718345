"""Federated prompt learners of the years 2024 and 2025: DP-FPL, FedAPT. See methods.py."""
import torch

from methods import C, DASSL, F, PLAIN, SCALE, W, Method, Summed, text


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
    defaults = {"tokens": 16, "position": "end", "rank": 8, "clip": 10.0, "noise": 0.0, "noisy": "factors", "sign": "minus", "factor": 1.0,
                "orth_v": True, "weighting": "uniform"}

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
        v = local.T @ u
        v = (columns(v) if o["orth_v"] else v).T
        rest = local - u @ v
        u.requires_grad_(), v.requires_grad_()
        loss = F.cross_entropy(self.scores(env, env.now["global"] + u @ v + rest), env.y)
        by_u, by_v = (self.released(env, g) for g in torch.autograd.grad(loss, [u, v]))
        u, v = u.detach(), v.detach()
        sign = -1 if o["sign"] == "minus" else 1
        grads["local"].copy_(o["factor"] * (by_u @ v + u @ by_v + sign * u @ u.T @ by_u @ v))
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
    defaults = {"tokens": 16, "position": "end", "class_specific": False, "domains": 0, "weight": 1.0, "query_scale": 10.0, "temp": 0.01,
                "assign": "prompts", "weighting": "uniform"}

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
        return self.o["query_scale"] * env.x @ p["query"].T

    def logits(self, env, p):
        q, keys, out = self.query(env, p), env.down["apt/keys"], []
        a = ((q - q.mean(1, keepdim=True)) / q.std(1, keepdim=True) / self.o["temp"]).softmax(1)
        for x, w in zip(env.x, a):
            if self.o["assign"] == "hard":
                w = F.one_hot(w.argmax(), len(w)).double()
            if self.o["assign"] == "prompts":
                out.append(self.scores(env, p, x, torch.einsum("d,dtw->tw", w, keys)))
            else:
                out.append(sum(w[d] * self.scores(env, p, x, keys[d]) for d in range(len(w))))
        return torch.stack(out)

    def terms(self, env, p):
        d = int(env.down["apt/domains"][env.k])
        ce = F.cross_entropy(self.scores(env, p, env.x, env.down["apt/keys"][d]), env.y)
        return {"cross entropy": ce, "domain": self.o["weight"] * F.cross_entropy(self.query(env, p), torch.full_like(env.y, d))}


METHODS = {"dpfpl": DPFPL, "fedapt": FedAPT}
WRAPPERS = {}
ALIKE, TERMS = {"alike": True}, {"terms": True}
CASES = [
    ("dpfpl", [], {"tokens": 3, "rank": 2}, DASSL),
    ("dpfpl", [], {"tokens": 4, "rank": 2, "clip": 0.1, "noise": 0.5, "steps": 3}, PLAIN),
    ("dpfpl", [], {"tokens": 4, "rank": 3, "clip": 0.2, "noise": 0.3, "noisy": "all", "sign": "plus", "factor": 0.1, "position": "middle"}, DASSL),
    ("dpfpl", [], {"tokens": 4, "rank": 2, "clip": 0.0, "orth_v": False, "weighting": "examples"}, PLAIN),
    ("dpfpl", ["fedprox"], {"tokens": 3, "rank": 1, "clip": 0.3, "noise": 0.1, "mu": 2.0}, {**DASSL, "epochs": 2}),
    ("fedapt", [], {"tokens": 3, "temp": 0.3}, DASSL, {**ALIKE, **TERMS}),
    ("fedapt", [], {"tokens": 2, "domains": 2, "class_specific": True, "assign": "scores", "temp": 0.5, "weight": 0.4, "query_scale": 3.0, "position": "middle"}, PLAIN, ALIKE),
    ("fedapt", ["fedprox"], {"tokens": 2, "domains": 2, "assign": "hard", "weighting": "examples", "mu": 1.5}, {**DASSL, "epochs": 2}, ALIKE),
]
