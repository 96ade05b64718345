"""TRIP: experts mixed by a parameter-free routing of each image's tokens. See methods.py."""
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import beta

from methods import DASSL, F, PLAIN, SCALE, W, Method, Summed, sentences, text, unit

ROUNDS = 2


def route(x, keys, capacity, iters):
    """Weights [E] of one image's tokens x [N,v], one token after the other; the match of clusters and keys is SciPy's."""
    n, e = len(x), len(keys)
    rooms = [int(n // e * capacity) + (i < n % e) for i in range(e)]
    c, multiplier = x[[(2 * i + 1) * n // (2 * e) for i in range(e)]], torch.zeros(e).double()
    for _ in range(iters):
        apart = torch.cdist(x, c, compute_mode="donot_use_mm_for_euclid_dist")
        cost, name = (apart + multiplier).min(1)
        members = [[] for _ in range(e)]
        for i in torch.argsort(cost, stable=True).tolist():
            if len(members[name[i]]) < rooms[name[i]]:
                members[name[i]].append(i)
        far = apart.min(1).values.argmax()
        new = torch.stack([x[m].mean(0) if m else x[far] for m in members])
        multiplier = torch.tensor([float(multiplier[i] + 1e-4 * (len(m) - rooms[i])) if m else 0.0 for i, m in enumerate(members)]).double()
        move = (new - c).norm(dim=1).mean()
        c = new
        if move < 1e-4:
            break
    clusters, experts = linear_sum_assignment((unit(c) @ unit(keys).T).numpy(), maximize=True)
    weights = torch.zeros(e).double()
    for i, j in zip(clusters, experts):
        weights[j] = len(members[i])
    return weights / weights.sum()


class TRIP(Summed, Method):
    shared = ["experts"]
    defaults = {"weighting": "examples", "tokens": 32, "position": "end", "experts": 4, "alpha": 1.0, "templates": [], "capacity": 1.0, "capacity_test": 2.0,
                "iters": 100, "average": "none", "beta": 0.2, "decay": 0.99}

    def init(self, name, client):
        return 430, 0.9, self.o["experts"], self.o["tokens"], W

    def start(self, server):
        server.down["trip/keys"] = 431, 1, self.o["experts"], 4
        if self.o["average"] != "none":
            server.down["trip/average"] = self.init("experts", None)
        if self.o["average"] == "beta":
            server.kept["trip/weight"] = torch.tensor([self.density(0)]).double()

    def density(self, r):
        """SciPy's, without the constant."""
        b, middle = self.o["beta"], 0.25 ** (self.o["beta"] - 1)
        return float(beta.pdf((r + 0.5) / (ROUNDS + 1), b, b) / beta.pdf(0.5, b, b) * middle)

    def scores(self, env, experts, capacity):
        out = []
        for x, t in zip(env.x, env.tokens):
            ctx = torch.einsum("e,etw->tw", route(t, env.down["trip/keys"], capacity, self.o["iters"]), experts)
            out.append(SCALE * text(ctx, env.backbone, 0, self.o["position"]) @ x)
        return torch.stack(out)

    def logits(self, env, p):
        return self.scores(env, p["experts"] if self.o["average"] == "none" else env.down["trip/average"], self.o["capacity_test"])

    def terms(self, env, p):
        z = self.scores(env, p["experts"], self.o["capacity"])
        out = {"cross entropy": F.cross_entropy(z, env.y)}
        if self.o["alpha"]:
            t = [sentences(env.backbone, t, raw=True) for t in self.o["templates"]] or [sentences(env.backbone)]
            q = (SCALE * env.x @ unit(sum(t)).T).softmax(1)
            out["distillation"] = self.o["alpha"] * F.cross_entropy(z, q)
        return out

    def merge(self, r, server, ups):
        if self.o["weighting"] == "uniform":
            for u in ups:
                u.n = 1
        super().merge(r, server, ups)
        share = 1 - self.o["decay"]
        if self.o["average"] == "beta":
            total = server.kept["trip/weight"] + self.density(r)
            server.kept["trip/weight"], share = total, self.density(r) / total
        if self.o["average"] != "none":
            old = server.down["trip/average"]
            server.down["trip/average"] = old + share * (server.shared["experts"] - old)


METHODS = {"trip": TRIP}
TERMS = {"terms": True}
CASES = [
    ("trip", [], {"tokens": 3, "experts": 3, "templates": ["a {}", "the {}."]}, PLAIN, TERMS),
    ("trip", [], {"tokens": 2, "templates": [], "alpha": 0.4, "capacity": 1.5, "position": "middle", "average": "beta"}, DASSL),
    ("trip", [], {"tokens": 2, "experts": 2, "alpha": 0.0, "capacity_test": 1.0, "iters": 2, "average": "ema", "decay": 0.7, "weighting": "uniform"}, {**DASSL, "epochs": 2}),
    ("trip", ["fedprox"], {"tokens": 1, "experts": 1, "templates": [], "mu": 1.5}, {**DASSL, "epochs": 2}),
]
