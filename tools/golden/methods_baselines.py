"""Wrappers of the server's step and of personalisation: FedNova, q-FedAvg, FedPer, FedRep, Ditto, APFL, FedAMP; and pFedMoAP. See methods.py."""
import torch

from methods import BACKBONES, DASSL, F, PLAIN, SCALE, W, Method, Summed, Wrapper, text
from methods_wrappers import ALIKE, OTP, PHA, T, TWO, Server

TERMS = {"terms": True}

IVLP = {"tokens": 2, "words": "", "vision_tokens": 2}


class FedNova(Server):
    """Eq. 5-6 with the closed forms of a_k for momentum and for the proximal term."""
    defaults = {"weighting": "examples", "most": 10.0}

    def __init__(self, inner, o):
        super().__init__(inner, o)
        self.mu = inner.o["mu"] if type(inner).__name__ == "FedProx" else 0

    def finish(self, env, p, up):
        super().finish(env, p, up)
        tau, rho, em = env.steps, self.train["momentum"], env.lr * self.mu
        assert not (rho and em)
        a = tau if not rho else (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
        a = (1 - (1 - em) ** tau) / em if em else a
        up.shared = {n: env.received[n] + (t - env.received[n]) / a for n, t in up.shared.items()}
        up.extra["nova/a"] = torch.tensor([a]).double()

    def merge(self, r, server, ups):
        a = torch.cat([u.extra["nova/a"] for u in ups])
        a = a.clamp(max=self.o["most"] * a.quantile(0.5))
        p = torch.tensor([1.0 if self.o["weighting"] == "uniform" else u.n for u in ups]).double()
        old = self.mean(r, server, ups)
        for n in self.shared:
            server.shared[n] = old[n] + (p * a).sum() / p.sum() * (server.shared[n] - old[n])


class QFFL(Server):
    """Algorithm 2 as written, with its Δ_k."""
    defaults = {"weighting": "examples", "q": 0.2, "most": 10.0}

    def begin(self, env, p):
        with torch.no_grad():
            env.memo["f"] = F.cross_entropy(self.inner.logits(env, p), env.y)
        super().begin(env, p)

    def finish(self, env, p, up):
        super().finish(env, p, up)
        up.extra["qffl/loss"] = env.memo["f"].reshape(1)

    def merge(self, r, server, ups):
        old, q = self.mean(r, server, ups), self.o["q"]
        big = 1 / server.lr
        f = torch.cat([u.extra["qffl/loss"] for u in ups])
        middle, most = f.quantile(0.5), self.o["most"]
        f = f.clamp(middle / most, most * middle) if most else f
        num, den = {n: 0 for n in self.shared}, 0
        for fk, u in zip(f, ups):
            p = 1 if self.o["weighting"] == "uniform" else u.n
            delta = {n: big * (old[n] - u.shared[n]) for n in self.shared}
            num = {n: num[n] + p * fk**q * delta[n] for n in self.shared}
            den += p * (q * fk ** (q - 1) * sum((d**2).sum() for d in delta.values()) + big * fk**q)
        server.shared = {n: old[n] - num[n] / den for n in self.shared}


class FedPer(Wrapper):
    defaults = {"private": []}

    def __init__(self, inner, o):
        super().__init__(inner, o)
        mine = [n for n in inner.shared if any(n == at or n.startswith(at + "/") for at in self.o["private"])]
        self.shared, self.private = [n for n in inner.shared if n not in mine], inner.private + mine


class FedRep(FedPer):
    defaults = {"private": [], "head_epochs": 1}

    def adjust(self, env, grads):
        env.frozen = self.shared if env.epoch < self.o["head_epochs"] else self.private
        super().adjust(env, grads)


class TwoModels(Summed, Wrapper):
    """A model of each client's own beside the averaged one."""
    personal = True

    def __init__(self, inner, o):
        super().__init__(inner, o)
        self.personal, self.private = True, [f"{self.prefix}/{n}" for n in inner.shared]

    def init(self, name, client):
        return self.inner.init(name.removeprefix(self.prefix + "/"), None)

    def copies(self, p):
        return {n: p[f"{self.prefix}/{n}"] for n in self.shared}

    def terms(self, env, p):
        out = dict(self.inner.terms(env, p))
        env.first = getattr(env, "beside", None)
        for name, v in self.inner.terms(env, self.other(env, p)).items():
            out[name + " personal"] = v
        env.second = getattr(env, "beside", None)
        return out

    def adjust(self, env, grads):
        env.beside = env.first
        self.inner.adjust(env, grads)
        env.beside = env.second
        self.inner.adjust(env, self.copies(grads))


class Ditto(TwoModels):
    """Eq. 1."""
    defaults, prefix = {"lambda": 0.1}, "ditto"

    def other(self, env, p):
        return self.copies(p)

    def terms(self, env, p):
        far = sum((v - env.received[n]).pow(2).sum() for n, v in self.copies(p).items())
        return {**super().terms(env, p), "proximal personal": self.o["lambda"] / 2 * far}

    def finish(self, env, p, up):
        super().finish(env, p, up)
        env.own = self.copies(p)


class APFL(TwoModels):
    """Algorithm 1, with the gradients of F(m) with respect to m by autograd."""
    defaults, prefix = {"alpha": 0.5, "alpha_lr": 0.0}, "apfl"

    def begin(self, env, p):
        super().begin(env, p)
        env.a = env.kept.get("apfl/a", torch.tensor([self.o["alpha"]]).double())

    def other(self, env, p):
        return {n: env.a * v + (1 - env.a) * p[n].detach() for n, v in self.copies(p).items()}

    def terms(self, env, p):
        env.now = {n: t.detach().clone() for n, t in p.items()}
        return super().terms(env, p)

    def adjust(self, env, grads):
        super().adjust(env, grads)
        of_mix = {n: g / env.a for n, g in self.copies(grads).items()}
        slope = sum(((env.now["apfl/" + n] - env.now[n]) * g).sum() for n, g in of_mix.items())
        env.a = (env.a - self.o["alpha_lr"] * slope).clamp(0, 1)

    def finish(self, env, p, up):
        super().finish(env, p, up)
        env.own = self.other(env, p)
        if self.o["alpha_lr"]:
            env.kept["apfl/a"] = env.a


class FedAMP(Summed, Wrapper):
    """Algorithm 1."""
    defaults = {"mu": 1.0, "sigma": 0.0}

    def __init__(self, inner, o):
        super().__init__(inner, o)
        self.personal = True

    def begin(self, env, p):
        for n in self.shared:
            p[n] = env.kept.get("amp/w/" + n, p[n]).clone()
        super().begin(env, p)

    def terms(self, env, p):
        far = sum((p[n] - env.down.get("amp/u/" + n, env.received[n])).pow(2).sum() for n in self.shared)
        return {**self.inner.terms(env, p), "attentive proximal": self.o["mu"] / 2 * far}

    def finish(self, env, p, up):
        super().finish(env, p, up)
        env.kept.update({"amp/w/" + n: p[n] for n in self.shared})

    def merge(self, r, server, ups):
        w = torch.stack([torch.cat([u.shared[n].ravel() for n in self.shared]) for u in ups])  # all take part
        d = torch.cdist(w, w) ** 2
        sigma = self.o["sigma"] or d[torch.triu(torch.ones_like(d), 1) > 0].quantile(0.5)
        x = sigma / len(ups) * torch.exp(-d / sigma) / sigma * (1 - torch.eye(len(ups)))
        x = x + torch.diag(1 - x.sum(1))
        for i, u in enumerate(ups):
            server.kept.update({f"amp/{i}/{n}": t for n, t in u.shared.items()})
            server.each[i] = {**server.each.get(i, {}),
                              **{"amp/u/" + n: sum(x[i, j] * v.shared[n] for j, v in enumerate(ups)) for n in self.shared}}
        super().merge(r, server, ups)


class PFedMoAP(Method):
    """Eq. 6-10, with torch's attention taken apart."""
    shared, private = ["ctx"], [f"gate/{n}/{p}" for n in "qkvo" for p in "wb"]
    defaults = {"tokens": 16, "experts": 10, "gating_dim": 128, "heads": 8, "kappa": 10.0, "lambda": 0.5, "gating_lr": 0.01}

    def __init__(self, o):
        super().__init__(o)
        self.personal = True

    def init(self, name, client):
        if name == "ctx":
            return 10, 0.6, self.o["tokens"], W
        d = len(self.pool(torch.zeros(BACKBONES[client][0])))
        return (40 + 10 * client + self.private.index(name), 0.8, *((d, d) if name[-1] == "w" else (d,)))

    def pool(self, v):
        return v[..., :: max(1, v.shape[-1] // self.o["gating_dim"])]

    def logits(self, env, p):
        return self.mixed(env, p, "tested")

    def mixed(self, env, p, which):
        own = text(p["ctx"], env.backbone)
        alone = SCALE * env.x @ own.T
        known = [e for e, there in zip(env.down["moap/" + which], env.down["moap/tested_known" if which == "tested" else "moap/known"]) if there]
        if not known:
            return alone
        keys = self.pool(torch.stack([own] + [text(e, env.backbone).detach() for e in known]))
        lin = {n: lambda x, n=n: F.linear(x, p[f"gate/{n}/w"], p[f"gate/{n}/b"]) for n in "qkvo"}
        x, h = self.pool(env.x), self.o["heads"]
        split = lambda t: t.reshape(*t.shape[:-1], h, -1)
        a = torch.einsum("bhj,echj->bche", split(lin["q"](x)), split(lin["k"](keys)))
        a = torch.softmax(self.o["kappa"] * a, -1)
        mix = torch.einsum("bche,echj->bchj", a, split(lin["v"](keys))).flatten(2)
        return SCALE * torch.einsum("bj,bcj->bc", x, lin["o"](mix)) + self.o["lambda"] * alone

    def start(self, server):
        for k in range(3):
            server.each[k] = {}
            for prompts, known in (("experts", "known"), ("tested", "tested_known")):
                server.each[k]["moap/" + prompts] = torch.zeros(self.o["experts"] - 1, self.o["tokens"], W).double()
                server.each[k]["moap/" + known] = torch.zeros(self.o["experts"] - 1).double()

    def rate(self, name, lr):
        """The gate's optimizer has a rate of its own, at which torch decays its weights too."""
        return self.o["gating_lr"] if name in self.private and self.o["gating_lr"] else lr

    def adjust(self, env, grads):
        if not env.down["moap/known"].any():
            env.frozen = self.private

    def loss(self, env, p):
        out = F.cross_entropy(self.mixed(env, p, "experts"), env.y)
        return out + 0 * sum(p[n].sum() for n in self.private)  # so that all have a gradient

    def merge(self, r, server, ups):
        server.kept.update({f"moap/{u.client}": u.shared["ctx"] for u in ups})
        turn = server.each
        server.each = {}
        self.start(server)
        for u in ups:
            near = sorted((v for v in ups if v is not u), key=lambda v: (v.shared["ctx"] - u.shared["ctx"]).norm())
            for i, v in enumerate(near[: self.o["experts"] - 1]):
                server.each[u.client]["moap/experts"][i] = v.shared["ctx"]
                server.each[u.client]["moap/known"][i] = 1
            # All of these cases train all clients in every round.
            server.each[u.client]["moap/tested"], server.each[u.client]["moap/tested_known"] = turn[u.client]["moap/experts"], turn[u.client]["moap/known"]
        super().merge(r, server, ups)


METHODS = {"pfedmoap": PFedMoAP}
WRAPPERS = {"fedamp": FedAMP, "ditto": Ditto, "apfl": APFL, "fedper": FedPer, "fedrep": FedRep, "fednova": FedNova, "qffl": QFFL}
CASES = [
    ("promptfl", ["fednova"], T, TWO),
    ("promptfl", ["fednova"], {**T, "weighting": "uniform", "most": 1.0}, {**DASSL, "weight_decay": 0}),
    ("promptfl", ["fedprox", "fednova"], {**T, "mu": 3.0}, TWO),
    ("fedotp", ["fednova"], OTP, PLAIN),
    ("promptfl", ["qffl"], {**T, "q": 1.0}, TWO),
    ("promptfl", ["qffl"], {**T, "q": 0.2, "weighting": "uniform", "most": 1.0}, DASSL),
    ("fedpha", ["qffl"], {**PHA, "q": 2.0}, PLAIN),
    ("ivlp", ["fedper"], {**IVLP, "private": ["image"]}, DASSL, ALIKE),
    ("fedclip", ["fedper", "fedprox"], {"loss": "ce", "private": ["adapter/2"]}, PLAIN, ALIKE),
    ("ivlp", ["fedrep"], {**IVLP, "private": ["text"]}, {**DASSL, "epochs": 2}, ALIKE),
    ("ivlp", ["fedrep", "scaffold"], {**IVLP, "private": ["image"]}, {**DASSL, "epochs": 2}, ALIKE),
    ("promptfl", ["ditto"], {**T, "lambda": 2.0}, DASSL, TERMS),
    ("ivlp", ["ditto", "scaffold"], IVLP, {**TWO, "lr": 0.5}, ALIKE),
    ("prograd", ["ditto"], {**T, "ditto": {"lambda": 0.5}}, DASSL),
    ("promptfl", ["apfl"], {**T, "alpha_lr": 0.5}, TWO),
    ("kgcoop", ["apfl", "fedprox"], {**T, "alpha": 0.3, "mu": 2.0}, DASSL),
    ("prograd", ["apfl"], {**T, "alpha": 0.9, "alpha_lr": 0.2}, PLAIN),
    ("promptfl", ["fedamp"], T, DASSL, TERMS),
    ("fedpha", ["fedamp"], {**PHA, "fedamp": {"mu": 0.5, "sigma": 3.0}}, PLAIN),
    ("pfedmoap", [], {"tokens": 2, "experts": 2, "gating_dim": 2, "heads": 3, "gating_lr": 0.3}, TWO),
    ("pfedmoap", [], {"tokens": 2, "experts": 4, "heads": 1, "kappa": 2.0, "lambda": 0.2, "gating_lr": 0.0}, DASSL),
    ("pfedmoap", [], {"tokens": 1, "experts": 3, "gating_dim": 3, "heads": 1, "kappa": 2.0, "gating_lr": 0.2}, {**DASSL, "weight_decay": 0.05}),
    ("pfedmma", ["fedrep"], {"rank": 2, "alpha": 0.5, "towers": "text", "private": ["mid/b"], "head_epochs": 2}, {**PLAIN, "epochs": 3}),
]
