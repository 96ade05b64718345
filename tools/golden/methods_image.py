"""Methods that look at more than one feature of an image: FedOTP, FedCLIP, pFedPrompt. See methods.py."""
import math

import torch

from methods import DASSL, F, PLAIN, SCALE, W, C, Method, sentences, text, unit


class FedOTP(Method):
    shared, private = ["global"], ["local"]
    defaults = {"tokens": 16, "position": "end", "transport": "unbalanced", "top_percent": 0.8, "eps": 0.1, "iters": 100,
                "threshold": 1e-3, "stop": "image"}

    def init(self, name, client):
        return 11 if name == "global" else 12 + client, 0.6, self.o["tokens"], W

    def plan(self, sim):
        """The transport plans of [B,C,M,2] similarities: the public code's iterations."""
        o, shape = self.o, sim.shape
        sim = sim.flatten(0, 1)
        pairs, patches, _ = sim.shape
        gamma = 1.0 if o["transport"] == "balanced" else min(1.0, o["top_percent"])
        k = torch.exp(-(1 - sim) / o["eps"])
        a, b = torch.full((patches,), 1 / patches).double(), torch.full((2,), gamma / 2).double()
        kp, kq = torch.diag(1 / a) @ k, torch.diag(1 / b) @ k.transpose(1, 2)

        def solve(kp, kq):
            u, v = torch.ones(len(kp), patches).double(), torch.ones(len(kp), 2).double()
            for _ in range(o["iters"]):
                old_u, old_v = u, v
                u = 1 / (kp @ v[:, :, None])[:, :, 0]
                if o["transport"] == "unbalanced":
                    u = u.clamp(max=1)
                v = 1 / (kq @ u[:, :, None])[:, :, 0]
                by_u = o["stop"] == "code" and o["transport"] == "balanced"
                if ((u - old_u) if by_u else (v - old_v)).abs().mean() < o["threshold"]:
                    break
            return u, v

        together = {"code": pairs, "image": shape[1], "pair": 1}[o["stop"]]
        each = [solve(kp[i:i + together], kq[i:i + together]) for i in range(0, pairs, together)]
        u, v = torch.cat([e[0] for e in each]), torch.cat([e[1] for e in each])
        return (torch.diag_embed(u) @ k @ torch.diag_embed(v)).reshape(shape)

    def logits(self, env, p):
        t = torch.stack([text(p[n], env.backbone, 0, self.o["position"]) for n in ("global", "local")])
        sim = torch.einsum("bmd,ncd->bcmn", env.patches, t)
        with torch.no_grad():
            plan = self.plan(sim)
        return SCALE * (plan * sim).sum((2, 3))


class FedCLIP(Method):
    shared = [f"adapter/{i}/{n}" for i in (1, 2) for n in "wb"]
    defaults = {"loss": "contrastive", "weighting": "uniform"}

    def init(self, name, client):
        i = self.shared.index(name)
        return (30 + i, 2.0, 5, 5) if name.endswith("w") else (30 + i, 0.5, 5)

    def both(self, env, p):
        hidden = torch.tanh(F.linear(env.x, p["adapter/1/w"], p["adapter/1/b"]))
        attention = torch.softmax(F.linear(hidden, p["adapter/2/w"], p["adapter/2/b"]), dim=1)
        return unit(attention * env.x), sentences(env.backbone, "a picture of a {}")

    def features(self, env, p):
        return self.both(env, p)[1]

    def logits(self, env, p):
        x, t = self.both(env, p)
        return SCALE * x @ t.T

    def loss(self, env, p):
        if self.o["loss"] == "ce":
            return super().loss(env, p)
        x, t = self.both(env, p)
        pairs, own = SCALE * x @ t[env.y].T, torch.arange(len(x))
        return (F.cross_entropy(pairs, own) + F.cross_entropy(pairs.T, own)) / 2

    def merge(self, r, server, ups):
        if self.o["weighting"] == "uniform":
            server.shared = {n: sum(u.shared[n] for u in ups) / len(ups) for n in server.shared}
        else:
            super().merge(r, server, ups)


class PFedPrompt(Method):
    shared = ["ctx"]
    defaults = {"tokens": 16, "position": "end", "alpha": 0.5, "beta": 0.0}

    def init(self, name, client):
        return 10, 0.6, self.o["tokens"], W

    def features(self, env, p):
        return text(p["ctx"], env.backbone, 0, self.o["position"])

    def logits(self, env, p):
        t, keys = self.features(env, p), env.all_x
        a = torch.softmax((self.o["beta"] or SCALE) * env.x @ keys.T, dim=1)
        return SCALE * (env.x @ t.T + self.o["alpha"] * (a @ F.one_hot(env.all_y, C).double()))

    def loss(self, env, p):
        return F.cross_entropy(SCALE * env.x @ self.features(env, p).T, env.y)


class Powder(Method):
    defaults = {"tokens": 4, "position": "end", "prompts": 4, "sharpness": 5.0, "weighting": "use"}

    def __init__(self, o):
        super().__init__(o)
        self.shared = [f"pool/{i}" for i in range(self.o["prompts"])]
        self.private = ["keys"] if self.o["prompts"] > 1 and self.o["sharpness"] > 0 else []

    def init(self, name, client):
        if name == "keys":
            return 50 + client, 1.0, self.o["prompts"], [5, 7, 5][client]
        return 40 + int(name[5:]), 0.6, self.o["tokens"], W

    def attention(self, x, p):
        return torch.softmax(self.o["sharpness"] * x @ unit(p["keys"]).T, dim=1)

    def logits(self, env, p):
        scores = torch.stack([SCALE * env.x @ text(p[n], env.backbone, 0, self.o["position"]).T for n in self.shared])
        if not self.private:
            return scores.mean(0)
        return torch.einsum("bp,pbc->bc", self.attention(env.x, p), scores)

    def finish(self, env, p, up):
        if self.private and self.o["weighting"] == "use":
            up.extra["powder/use"] = self.attention(env.all_x, p).mean(0)

    def merge(self, r, server, ups):
        if not self.private or self.o["weighting"] == "examples":
            return super().merge(r, server, ups)
        for i, n in enumerate(self.shared):
            w = torch.stack([u.n * u.extra["powder/use"][i] for u in ups])
            server.shared[n] = sum(a * u.shared[n] for a, u in zip(w, ups)) / w.sum()


class UOPP(Method):
    shared, private = ["general"], ["expert"]
    defaults = {"tokens": 16, "position": "end"}

    def init(self, name, client):
        return 11 if name == "general" else 12 + client, 0.6, self.o["tokens"], W

    def of(self, env, p, name):
        return SCALE * env.x @ text(p[name], env.backbone, 0, self.o["position"]).T

    def logits(self, env, p):
        general, expert = self.of(env, p, "general"), self.of(env, p, "expert")
        h = torch.distributions.Categorical(logits=expert).entropy()[:, None] / math.log(C)
        return h * general + (1 - h) * expert

    def loss(self, env, p):
        return super().loss(env, p) + sum(F.cross_entropy(self.of(env, p, n), env.y) for n in ("general", "expert"))


METHODS = {"fedotp": FedOTP, "fedclip": FedCLIP, "pfedprompt": PFedPrompt, "powder": Powder, "uopp": UOPP}
ALIKE = {"alike": True}
OTP = {"tokens": 3}
CASES = [
    ("fedotp", [], OTP, PLAIN),
    ("fedotp", [], {**OTP, "top_percent": 1.0}, PLAIN),
    ("fedotp", [], {**OTP, "top_percent": 0.3, "stop": "pair", "position": "middle"}, DASSL),
    ("fedotp", [], {**OTP, "eps": 0.2, "threshold": 0.0}, PLAIN),
    ("fedotp", [], {**OTP, "iters": 1, "threshold": 0.0}, {**PLAIN, "epochs": 2}),
    ("fedotp", [], {**OTP, "transport": "balanced", "position": "front"}, PLAIN),
    ("fedotp", [], {**OTP, "transport": "balanced", "iters": 3, "threshold": 0.0}, PLAIN),
    ("fedotp", [], {**OTP, "transport": "balanced", "eps": 0.04, "iters": 7, "stop": "pair"}, PLAIN),
    ("fedotp", [], {**OTP, "eps": 0.04}, PLAIN),
    ("fedotp", [], {**OTP, "stop": "code"}, PLAIN),
    ("fedotp", [], {**OTP, "stop": "code", "transport": "balanced", "threshold": 0.03}, PLAIN),
    ("fedotp", [], {**OTP, "stop": "code", "transport": "balanced", "eps": 0.04, "threshold": 0.03}, PLAIN),
    ("fedclip", [], {}, PLAIN, ALIKE),
    ("fedclip", [], {"loss": "ce", "weighting": "examples"}, DASSL, ALIKE),
    ("fedclip", [], {}, {**PLAIN, "epochs": 2}, ALIKE),
    ("fedclip", ["fedprox"], {"mu": 0.7}, {**PLAIN, "epochs": 2}, ALIKE),
    ("pfedprompt", [], {"tokens": 3}, PLAIN),
    ("pfedprompt", [], {"tokens": 2, "beta": 9.0, "position": "front"}, DASSL),
    ("pfedprompt", [], {"tokens": 2, "alpha": 2.0}, PLAIN),
    ("powder", [], {"tokens": 2, "prompts": 3}, PLAIN),
    ("powder", [], {"tokens": 1, "prompts": 2, "weighting": "examples", "sharpness": 1.0, "position": "front"}, DASSL),
    ("powder", [], {"tokens": 2, "prompts": 2, "sharpness": 0.0}, PLAIN),
    ("uopp", [], {"tokens": 3}, PLAIN),
    ("uopp", [], {"tokens": 2, "position": "middle"}, DASSL),
    ("fedotp", ["fedprox"], {**OTP, "mu": 0.7}, {**PLAIN, "epochs": 2}),
]
