"""The first methods: CoOp, PromptFL, FedPHA, FedAPPR, and the wrapper FedProx. See methods.py."""
import math

import torch

from methods import DASSL, F, PLAIN, SCALE, C, W, Method, Summed, Wrapper, sentences, text


def cross_entropy(features, env):
    return F.cross_entropy(SCALE * env.x @ features.T, env.y)


def projector(p, kind, rho):
    """FedPHA eq. 8-10 in its four readings."""
    t, d = p.shape
    if kind == "code":
        _, _, v = torch.svd(p)
        v = v[:, int(t * (1 - rho)):]
        return v @ v.T
    _, s, vh = torch.linalg.svd(p, full_matrices=False)
    rank = int((s > s[0] * max(t, d) * 2**-23).sum())
    keep = math.floor((1 - rho) * d + 1e-9)
    if kind == "exact-null":
        r = min(rank, d - keep)
        return torch.eye(d, dtype=p.dtype) - vh[:r].T @ vh[:r]
    assert rank == t or rank == d
    full = torch.linalg.qr(p.T, mode="complete")[0]  # completes the null space
    v = torch.cat([vh[:rank].T, full[:, rank:]], dim=1)
    v = {"eq9": v[:, d - keep:], "alg1": v[:, math.floor(d * (1 - rho) + 1e-9):], "def1": v[:, math.floor(d * rho + 1e-9):]}[kind]
    return v @ v.T


class ZeroShot(Method):
    def logits(self, env, p):
        return SCALE * env.x @ sentences(env.backbone).T


class PromptFL(Method):
    shared = ["ctx"]
    defaults = {"tokens": 16, "position": "end", "class_specific": False, "class_average": "all"}

    def init(self, name, client):
        return (10 + (client or 0), 0.6, *([C] if self.o["class_specific"] else []), self.o["tokens"], W)

    def features(self, env, p):
        if self.o["class_specific"]:  # class by class, as if its prompt were that of all
            return torch.stack([text(ctx, env.backbone, 0, self.o["position"])[c] for c, ctx in enumerate(p["ctx"])])
        return text(p["ctx"], env.backbone, 0, self.o["position"])

    def finish(self, env, p, up):
        if self.o["class_average"] == "owners":
            up.extra["class/n"] = torch.bincount(env.all_y, minlength=C).double().reshape(C, 1)

    def merge(self, r, server, ups):
        old = server.shared
        super().merge(r, server, ups)
        if self.o["class_average"] == "owners":
            for c in range(C):
                n = [u.extra["class/n"][c] for u in ups]
                rows = sum(k * u.shared["ctx"][c] for k, u in zip(n, ups)) / sum(n) if sum(n) else old["ctx"][c]
                server.shared["ctx"][c] = rows

    def logits(self, env, p):
        return SCALE * env.x @ self.features(env, p).T


class CoOp(PromptFL):
    shared, private = [], ["ctx"]


class FedPHA(Summed, Method):
    shared, private = ["global"], ["local"]
    defaults = {"ratio": 0.8, "alpha": 1.0, "projector": "eq9", "projector_grad": "detach", "svd_every": "round",
                "pull": "sum-per-class", "eot": "own"}

    def init(self, name, client):
        if name == "global":
            return 11, 0.6, self.o["global_tokens"], W
        return 12 + client, 0.6, self.o["local_tokens"][client % len(self.o["local_tokens"])], W

    def text(self, env, p):
        longest = max([self.o["global_tokens"]] + self.o["local_tokens"])
        return text(p, env.backbone, longest - len(p) if self.o["eot"] == "longest" else 0)

    def features(self, env, p):
        return self.text(env, p["local"])

    def logits(self, env, p):
        return SCALE * env.x @ self.features(env, p).T

    def terms(self, env, p):
        if "q" not in env.memo or self.o["svd_every"] == "step":
            env.memo["q"] = projector(p["global"], self.o["projector"], self.o["ratio"])
            if self.o["projector_grad"] == "detach":
                env.memo["q"] = env.memo["q"].detach()
        q = env.draws["projector"] = env.memo["q"]
        tg, tl, tp = self.text(env, p["global"]), self.text(env, p["local"]), self.text(env, p["local"] @ q)
        pull = (tl - tp).pow(2)
        pull = pull.mean() if self.o["pull"] == "mean" else pull.sum(1).mean()
        return {"cross entropy local": cross_entropy(tl, env), "cross entropy global": cross_entropy(tg, env), "pull": pull,
                "push": torch.relu(self.o["alpha"] - (tl - tg).norm(dim=1)).mean()}


class FedAPPR(Summed, PromptFL):
    personal = True
    defaults = {**PromptFL.defaults, "lambda_a": 0.1, "lambda_r": 0.01, "warmup": 20, "hidden": 8,
                "disc_norm": "unit", "disc_optim": "adam", "disc_steps": 50, "disc_lr": 0.001}

    def start(self, server):
        server.down = {"fedappr/w1": (20, 0.6, W, self.o["hidden"]), "fedappr/w2": (21, 0.6, self.o["hidden"], 1)}

    def disc(self, p, average, w):
        """Log-probability of an average and of an upload, per token; p [..., T, w], average the newest."""
        if self.o["disc_norm"] == "unit":
            p = p / average.pow(2).mean().sqrt()
        d = torch.sigmoid(torch.relu(p @ w["fedappr/w1"]) @ w["fedappr/w2"])
        return torch.log(d).mean(), torch.log(1 - d).mean()

    def terms(self, env, p):
        on = float(env.r + 1 > self.o["warmup"])
        return {"cross entropy": PromptFL.loss(self, env, p),
                "adversarial": -on * self.o["lambda_a"] * self.disc(p["ctx"], env.received["ctx"], env.down)[0],
                "proximity": self.o["lambda_r"] * (p["ctx"] - env.received["ctx"]).pow(2).sum()}

    def merge(self, r, server, ups):
        super().merge(r, server, ups)
        if r + 1 <= self.o["warmup"]:
            return
        pool = server.kept
        pool[f"fedappr/pool/{r:06d}"] = server.shared["ctx"]
        past, now = torch.stack([pool[n] for n in sorted(pool)]), torch.stack([u.shared["ctx"] for u in ups])
        server.down = {**server.down, **self.fit(server.down, past, now, server.shared["ctx"])}

    def fit(self, w, past, now, average):
        """The discriminator's weights after this round's steps."""
        w = {n: w[n].clone().requires_grad_() for n in ("fedappr/w1", "fedappr/w2")}
        opt = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[self.o["disc_optim"]](w.values(), lr=self.o["disc_lr"])
        for _ in range(self.o["disc_steps"]):
            opt.zero_grad()
            (-self.disc(past, average, w)[0] - self.disc(now, average, w)[1]).backward()
            opt.step()
        return {n: t.detach() for n, t in w.items()}


class FedProx(Summed, Wrapper):
    defaults = {"mu": 0.5}

    def proximal(self, env, p):
        return self.o["mu"] / 2 * sum((p[n] - env.received[n]).pow(2).sum() for n in self.shared)

    def loss(self, env, p): # that of appr has parts that are no terms
        return self.inner.loss(env, p) + self.proximal(env, p)

    def terms(self, env, p):
        return {**self.inner.terms(env, p), "proximal": self.proximal(env, p)}


METHODS = {"zeroshot": ZeroShot, "promptfl": PromptFL, "coop": CoOp, "fedpha": FedPHA, "fedappr": FedAPPR}
WRAPPERS = {"fedprox": FedProx}
PHA = {"global_tokens": 3, "local_tokens": [2, 4, 3], "ratio": 0.5}
APPR = {"tokens": 3, "lambda_a": 0.5, "lambda_r": 0.2, "hidden": 3, "warmup": 0}
SGD = {"disc_optim": "sgd", "disc_norm": "none", "disc_steps": 1, "disc_lr": 0.3}
CASES = [
    ("zeroshot", [], {}, PLAIN),
    ("promptfl", [], {"tokens": 3}, PLAIN),
    ("promptfl", [], {"tokens": 2, "position": "middle"}, DASSL),
    ("coop", [], {"tokens": 3}, {**PLAIN, "epochs": 2}),
    ("coop", [], {"tokens": 2, "position": "front"}, DASSL),
    ("fedpha", [], {**PHA, "projector": "eq9"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "eq9", "ratio": 0.8, "eot": "longest", "svd_every": "step"}, DASSL),
    ("fedpha", [], {**PHA, "projector": "alg1"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "code"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "code", "projector_grad": "through", "pull": "mean", "eot": "longest",
                    "svd_every": "step"}, DASSL),
    ("fedpha", [], PHA, PLAIN),
    ("fedpha", [], {**PHA, "projector": "exact-null", "projector_grad": "through", "svd_every": "step"}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "exact-null", "svd_every": "round", "alpha": 1.7}, PLAIN),
    ("fedpha", [], {**PHA, "projector": "exact-null", "ratio": 0.2, "local_tokens": [3], "alpha": 0.3}, PLAIN),
    ("fedappr", [], APPR, PLAIN),
    ("fedappr", [], {**APPR, **SGD}, PLAIN),
    ("fedappr", [], {**APPR, "warmup": 1, "disc_lr": 0.01}, PLAIN),
    ("fedappr", [], {**APPR, **SGD, "disc_steps": 3}, DASSL),
    ("fedappr", [], {**APPR, "disc_steps": 3}, DASSL),
    ("fedappr", [], {**APPR, "lambda_r": 0.0, "disc_norm": "none"}, PLAIN),
    ("promptfl", ["fedprox"], {"tokens": 3, "mu": 0.7}, {**PLAIN, "epochs": 2}),
    ("fedpha", ["fedprox"], {**PHA, "mu": 0.5}, PLAIN),
]
