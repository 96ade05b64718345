"""Wrappers of the server's step and of personalisation: FedNova, q-FedAvg, FedPer, FedRep. See methods.py."""
import torch

from methods import DASSL, F, PLAIN, Wrapper
from methods_wrappers import ALIKE, OTP, PHA, T, TWO, Server

IVLP = {"tokens": 2, "words": "", "vision_tokens": 2}


class FedNova(Server):
    """Eq. 5-6 with the closed forms of a_k for momentum and for the proximal term."""
    defaults = {"weighting": "examples", "strength": 1.0, "most": 10.0}

    def __init__(self, inner, o):
        super().__init__(inner, o)
        self.mu = inner.o["mu"] if type(inner).__name__ == "FedProx" else 0

    def finish(self, env, p, up):
        super().finish(env, p, up)
        tau, rho, em = env.steps, self.train["momentum"], env.lr * self.mu
        assert not (rho and em)
        a = tau if not rho else (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
        a = (1 - (1 - em) ** tau) / em if em else a
        a = a ** self.o["strength"]
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
    defaults = {"weighting": "examples", "q": 0.2, "lipschitz": 0.0, "most": 10.0}

    def begin(self, env, p):
        with torch.no_grad():
            env.memo["f"] = F.cross_entropy(self.inner.logits(env, p), env.y)
        super().begin(env, p)

    def finish(self, env, p, up):
        super().finish(env, p, up)
        up.extra["qffl/loss"] = env.memo["f"].reshape(1)

    def merge(self, r, server, ups):
        old, q = self.mean(r, server, ups), self.o["q"]
        big = self.o["lipschitz"] or 1 / server.lr
        f = torch.cat([u.extra["qffl/loss"] for u in ups])
        f = f.clamp(max=self.o["most"] * f.quantile(0.5)) if self.o["most"] else f
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


WRAPPERS = {"fedper": FedPer, "fedrep": FedRep, "fednova": FedNova, "qffl": QFFL}
CASES = [
    ("promptfl", ["fednova"], T, TWO),
    ("promptfl", ["fednova"], {**T, "weighting": "uniform", "most": 1.0}, {**DASSL, "weight_decay": 0}),
    ("promptfl", ["fedprox", "fednova"], {**T, "mu": 3.0, "strength": 0.5}, TWO),
    ("fedotp", ["fednova"], OTP, PLAIN),
    ("promptfl", ["qffl"], {**T, "q": 1.0}, TWO),
    ("promptfl", ["qffl"], {**T, "q": 0.2, "weighting": "uniform", "lipschitz": 4.0, "most": 1.0}, DASSL),
    ("fedpha", ["qffl"], {**PHA, "q": 2.0}, PLAIN),
    ("ivlp", ["fedper"], {**IVLP, "private": ["image"]}, DASSL, ALIKE),
    ("fedclip", ["fedper", "fedprox"], {"loss": "ce", "private": ["adapter/2"]}, PLAIN, ALIKE),
    ("ivlp", ["fedrep"], {**IVLP, "private": ["text"]}, {**DASSL, "epochs": 2}, ALIKE),
    ("ivlp", ["fedrep", "scaffold"], {**IVLP, "private": ["image"]}, {**DASSL, "epochs": 2}, ALIKE),
    ("pfedmma", ["fedrep"], {"rank": 2, "alpha": 0.5, "towers": "text", "private": ["mid/b"], "head_epochs": 2}, {**PLAIN, "epochs": 3}),
]
