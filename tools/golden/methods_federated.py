"""Federated prompt learners of the years 2024 and 2025: DP-FPL. See methods.py."""
import torch

from methods import DASSL, PLAIN, SCALE, W, Method, text


class DPFPL(Method):
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
        loss = torch.nn.functional.cross_entropy(self.scores(env, env.now["global"] + u @ v + rest), env.y)
        by_u, by_v = (self.released(env, g) for g in torch.autograd.grad(loss, [u, v]))
        u, v = u.detach(), v.detach()
        sign = -1 if o["sign"] == "minus" else 1
        grads["local"].copy_(o["factor"] * (by_u @ v + u @ by_v + sign * u @ u.T @ by_u @ v))
        grads["global"].copy_(self.released(env, grads["global"], o["noisy"] == "all"))

    def merge(self, r, server, ups):
        if self.o["weighting"] == "uniform":
            for u in ups:
                u.n = 1
        super().merge(r, server, ups)


def gram_schmidt(columns):
    out = []
    for c in columns:
        for b in out:
            c = c - (b @ c) * b
        out.append(c / c.norm())
    return out


METHODS = {"dpfpl": DPFPL}
WRAPPERS = {}
CASES = [
    ("dpfpl", [], {"tokens": 3, "rank": 2}, DASSL),
    ("dpfpl", [], {"tokens": 4, "rank": 2, "clip": 0.1, "noise": 0.5, "steps": 3}, PLAIN),
    ("dpfpl", [], {"tokens": 4, "rank": 3, "clip": 0.2, "noise": 0.3, "noisy": "all", "sign": "plus", "factor": 0.1, "position": "middle"}, DASSL),
    ("dpfpl", [], {"tokens": 4, "rank": 2, "clip": 0.0, "orth_v": False, "weighting": "examples"}, PLAIN),
    ("dpfpl", ["fedprox"], {"tokens": 3, "rank": 1, "clip": 0.3, "noise": 0.1, "mu": 2.0}, {**DASSL, "epochs": 2}),
]
