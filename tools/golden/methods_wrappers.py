"""Wrappers of the federation: SCAFFOLD, FedDyn, FedOpt, FedNTD, MOON, FedProto. See methods.py."""
import types

import torch

from methods import DASSL, F, PLAIN, C, Summed, Wrapper, text


def base(m):
    while hasattr(m, "inner"):
        m = m.inner
    return m


def prompts(m, env, p):
    """Unit class features [C,D] of each shared prompt."""
    return [text(p[n], env.backbone) for n in m.shared if n in ("ctx", "global", "sigma", "text/shared")]


def image(m, env, p):
    """Image features [B,D] of a base method that moves them."""
    root = base(m)
    return root.see(env, root.fuse(p, "image")) if hasattr(root, "fuse") else root.both(env, p)[0]


class Server(Wrapper):
    """Starts from a plain or a weighted mean of what clients uploaded."""

    def mean(self, r, server, ups):
        old = dict(server.shared)
        if self.o["weighting"] == "uniform":
            ups = [types.SimpleNamespace(**{**vars(u), "n": 1}) for u in ups]
        self.inner.merge(r, server, ups)
        return old


class SCAFFOLD(Server):
    """Algorithm 1 of the paper: y <- y - lr (g - c_i + c), option II for c_i."""
    defaults = {"weighting": "uniform", "server_lr": 1.0, "control": "gradients"}

    def start(self, server):
        super().start(server)
        server.down.update({"scaffold/c/" + n: torch.zeros_like(t) for n, t in server.shared.items()})

    def begin(self, env, p):
        super().begin(env, p)
        env.memo["x"] = {n: p[n].clone() for n in self.shared}
        env.memo["g"] = {n: torch.zeros_like(p[n]) for n in self.shared}

    def own(self, env, n):
        return env.kept.get("scaffold/c/" + n, torch.zeros_like(env.received[n]))

    def adjust(self, env, grads):
        super().adjust(env, grads)
        for n in self.shared:
            env.memo["g"][n] += grads[n]
            grads[n] += env.down["scaffold/c/" + n] - self.own(env, n)

    def finish(self, env, p, up):
        super().finish(env, p, up)
        for n in self.shared:
            old, c = self.own(env, n), env.down["scaffold/c/" + n]
            if self.o["control"] == "path":
                new = (env.memo["x"][n] - p[n]) / (env.steps * env.lr) + (old - c)
            else:
                new = env.memo["g"][n] / env.steps
            env.kept["scaffold/c/" + n], up.extra["scaffold/dc/" + n] = new, new - old

    def merge(self, r, server, ups):
        old = self.mean(r, server, ups)
        for n in self.shared:
            server.shared[n] = old[n] + self.o["server_lr"] * (server.shared[n] - old[n])
            server.down["scaffold/c/" + n] = server.down["scaffold/c/" + n] + sum(u.extra["scaffold/dc/" + n] for u in ups) / server.clients


class FedDyn(Summed, Server):
    """Algorithm 1 of the paper; h stands for the last gradient of a client's loss."""
    defaults = {"weighting": "uniform", "alpha": 0.1}

    def state(self, env, n):
        return env.kept.get("dyn/h/" + n, torch.zeros_like(env.received[n]))

    def terms(self, env, p):
        flat = torch.cat([(p[n] - env.received[n]).ravel() for n in self.shared])
        linear = sum((self.state(env, n) * p[n]).sum() for n in self.shared)
        return {**self.inner.terms(env, p), "dynamic linear": -linear, "dynamic quadratic": self.o["alpha"] / 2 * (flat @ flat)}

    def finish(self, env, p, up):
        super().finish(env, p, up)
        for n in self.shared:
            env.kept["dyn/h/" + n] = self.state(env, n) - self.o["alpha"] * (p[n] - env.received[n])

    def merge(self, r, server, ups):
        old, alpha = self.mean(r, server, ups), self.o["alpha"]
        for n in self.shared:
            h = server.kept.get("dyn/h/" + n, torch.zeros_like(old[n]))
            h = h - alpha / server.clients * (sum(u.shared[n] for u in ups) - len(ups) * old[n])
            server.kept["dyn/h/" + n], server.shared[n] = h, server.shared[n] - h / alpha


class FedOpt(Server):
    """Algorithm 2 of the paper, and FedAvgM."""
    defaults = {"weighting": "examples", "kind": "adam", "server_lr": 0.0, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}

    def merge(self, r, server, ups):
        old, o = self.mean(r, server, ups), self.o
        for n in self.shared:
            d, b1, b2 = server.shared[n] - old[n], o["beta1"], o["beta2"]
            m = server.kept.get("opt/m/" + n, torch.zeros_like(d))
            if o["kind"] == "momentum":
                server.kept["opt/m/" + n] = m = b1 * m + d
                server.shared[n] = old[n] + (o["server_lr"] or 1.0) * m
                continue
            m = b1 * m + (1 - b1) * d
            v = server.kept.get("opt/v/" + n, torch.zeros_like(d))
            v = {"adam": lambda: b2 * v + (1 - b2) * d**2, "adagrad": lambda: v + d**2,
                 "yogi": lambda: v - (1 - b2) * d**2 * torch.sign(v - d**2)}[o["kind"]]()
            server.kept["opt/m/" + n], server.kept["opt/v/" + n] = m, v
            server.shared[n] = old[n] + (o["server_lr"] or 0.01) * m / (v.sqrt() + o["tau"])


class FedNTD(Summed, Wrapper):
    """Eq. 3-5: softmax over the classes that an example is not of."""
    defaults = {"beta": 1.0, "tau": 1.0}

    def terms(self, env, p):
        others = torch.stack([torch.tensor([c for c in range(C) if c != y]) for y in env.y.tolist()])
        tau = self.o["tau"]
        with torch.no_grad():
            teacher = torch.softmax(self.inner.logits(env, env.received).gather(1, others) / tau, dim=1)
        student = torch.log_softmax(self.inner.logits(env, p).gather(1, others) / tau, dim=1)
        return {**self.inner.terms(env, p), "not-true distillation": self.o["beta"] * tau**2 * F.kl_div(student, teacher, reduction="batchmean")}


class MOON(Summed, Wrapper):
    """Eq. 3, by cross entropy over two similarities of representations that are centred over classes."""
    defaults = {"mu": 1.0, "tau": 0.5, "centre": True}

    def z(self, env, p):
        if type(base(self)).__name__ in ("FedPHA", "SDFed"):
            return torch.cat([self.centred(t, 0) for t in prompts(self, env, p)])
        return self.centred(self.inner.logits(env, p), 1)

    def centred(self, z, classes):
        return z - z.mean(classes, keepdim=True) if self.o["centre"] else z

    def terms(self, env, p):
        now = self.z(env, p)
        with torch.no_grad():
            received, before = self.z(env, env.received), self.z(env, env.before)
        both = torch.stack([F.cosine_similarity(now, received), F.cosine_similarity(now, before)], dim=1) / self.o["tau"]
        return {**self.inner.terms(env, p), "model-contrastive": self.o["mu"] * F.cross_entropy(both, torch.zeros(len(now), dtype=torch.long))}


class FedProto(Summed, Wrapper):
    """Eq. 3-7 with the squared distance, or the code's mean of squares; prototypes of class features."""
    defaults = {"weighting": "examples", "lambda": 1.0, "distance": "sum", "of": "text"}

    def rows(self, env, p, y):
        root = base(self)
        if self.o["of"] == "image":
            return image(self, env, p)
        t = text(p["global"], env.backbone, 0, root.o["position"]) if type(root).__name__ == "FedOTP" else self.inner.features(env, p)
        return t[y]

    def groups(self, server):
        return [[k for k in range(3) if server.backbones[k] == b] for b in dict.fromkeys(server.backbones)]

    def send(self, server, clients, proto):
        if len(self.groups(server)) == 1:
            server.down.update(proto)
        for k in clients if len(self.groups(server)) > 1 else []:
            server.each.setdefault(k, {}).update(proto)

    def start(self, server):
        super().start(server)
        for clients in self.groups(server):
            self.send(server, clients, {"proto/mean": torch.zeros(C, server.backbones[clients[0]][0]).double(), "proto/n": torch.zeros(C, 1).double()})

    def terms(self, env, p):
        known = env.down["proto/n"][env.y, 0] > 0
        rep = self.rows(env, p, env.y)
        target = torch.where(known[:, None], env.down["proto/mean"][env.y], rep.detach())
        far = (rep - target) ** 2
        return {**self.inner.terms(env, p), "prototype distance": self.o["lambda"] * (far.mean() if self.o["distance"] == "mean" else far.sum(1).mean())}

    def finish(self, env, p, up):
        super().finish(env, p, up)
        hot = F.one_hot(env.all_y, C).double()
        n = hot.sum(0)[:, None]
        up.extra["proto/n"] = n
        up.extra["proto/mean"] = torch.where(n > 0, hot.T @ self.rows(env, p, env.all_y) / n.clamp(min=1), torch.zeros(1).double())

    def merge(self, r, server, ups):
        for clients in self.groups(server):
            old = {**server.down, **server.each.get(clients[0], {})}
            n = torch.stack([ups[k].extra["proto/n"] for k in clients])
            w = n if self.o["weighting"] == "examples" else (n > 0).double()
            mean = (w * torch.stack([ups[k].extra["proto/mean"] for k in clients])).sum(0) / w.sum(0).clamp(min=1)
            there = n.sum(0) > 0
            self.send(server, clients, {"proto/mean": torch.where(there, mean, old["proto/mean"]), "proto/n": torch.where(there, n.sum(0), old["proto/n"])})
        super().merge(r, server, ups)


WRAPPERS = {"scaffold": SCAFFOLD, "feddyn": FedDyn, "fedopt": FedOpt, "fedntd": FedNTD, "moon": MOON, "fedproto": FedProto}
TWO = {**PLAIN, "epochs": 2}
PHA = {"global_tokens": 2, "local_tokens": [2, 3], "ratio": 0.5, "projector": "exact-null", "svd_every": "step"}
APPR = {"tokens": 2, "lambda_a": 0.5, "lambda_r": 0.2, "hidden": 3, "warmup": 0}
OTP = {"tokens": 2, "iters": 20}
T = {"tokens": 2}
FEW = {"sizes": [9, 3, 2]}
ALIKE = {"alike": True}
MIX = {"text_tokens": 2, "vision_tokens": 1, "attention": "none"}
DC = {"text_tokens": 2, "vision_tokens": 1}
CASES = [
    ("promptfl", ["scaffold"], {**T, "control": "path"}, PLAIN),
    ("promptfl", ["scaffold"], {**T, "control": "path", "server_lr": 0.7}, TWO),
    ("promptfl", ["scaffold"], {**T, "control": "path", "weighting": "examples"}, DASSL),
    ("promptfl", ["scaffold"], T, DASSL),
    ("promptfl", ["scaffold"], {**T}, TWO),
    ("fedpha", ["scaffold"], PHA, PLAIN),
    ("fedotp", ["scaffold"], OTP, {**TWO, "lr": 0.5}),
    ("promptfl", ["feddyn"], {**T, "alpha": 0.5}, TWO),
    ("promptfl", ["feddyn"], {**T, "weighting": "examples"}, DASSL),
    ("fedpha", ["feddyn"], {**PHA, "feddyn": {"alpha": 0.2}}, PLAIN),
    ("fedotp", ["feddyn"], OTP, PLAIN),
    ("promptfl", ["fedopt"], {**T, "server_lr": 0.1}, PLAIN),
    ("promptfl", ["fedopt"], {**T, "kind": "yogi", "tau": 0.05, "weighting": "uniform"}, PLAIN),
    ("promptfl", ["fedopt"], {**T, "kind": "yogi", "server_lr": 0.02, "beta2": 0.6}, DASSL),
    ("promptfl", ["fedopt"], {**T, "kind": "adagrad", "beta1": 0.3}, PLAIN),
    ("promptfl", ["fedopt"], {**T, "kind": "momentum"}, DASSL),
    ("fedpha", ["fedopt"], {**PHA, "kind": "momentum", "server_lr": 0.5, "beta1": 0.5}, PLAIN),
    ("fedotp", ["fedopt"], OTP, PLAIN),
    ("promptfl", ["fedntd"], T, TWO),
    ("promptfl", ["fedntd"], {**T, "beta": 0.4, "tau": 3.0}, DASSL),
    ("fedotp", ["fedntd"], OTP, PLAIN),
    ("promptfl", ["moon"], T, TWO),
    ("promptfl", ["moon"], {**T, "centre": False}, TWO),
    ("promptfl", ["moon"], {**T, "mu": 5.0, "tau": 0.2}, DASSL),
    ("promptfl", ["moon"], {**T}, PLAIN),
    ("promptfl", ["moon"], {**T, "centre": False}, PLAIN),
    ("fedclip", ["moon"], {"loss": "ce"}, PLAIN, ALIKE),
    ("fedpha", ["moon"], {**PHA, "mu": 2.0}, PLAIN),
    ("fedotp", ["moon"], OTP, PLAIN),
    ("coop", ["fedproto"], {**T, "lambda": 2.0}, TWO),
    ("coop", ["fedproto"], {**T, "lambda": 2.0, "distance": "mean"}, TWO),
    ("coop", ["fedproto"], {**T, "weighting": "uniform"}, PLAIN, FEW),
    ("promptfl", ["fedproto"], {**T, "lambda": 2.0}, DASSL, {**FEW, **ALIKE}),
    ("promptfl", ["fedproto"], {**T, "lambda": 2.0}, PLAIN),
    ("fedclip", ["fedproto"], {"of": "image", "lambda": 1.0, "loss": "ce"}, PLAIN, ALIKE),
    ("fedpha", ["fedproto"], {**PHA, "lambda": 2.0}, PLAIN),
    ("fedotp", ["fedproto"], {**OTP, "lambda": 2.0}, PLAIN),
    ("promptfl", ["fedprox", "scaffold"], T, DASSL),
    ("promptfl", ["moon", "feddyn"], T, DASSL),
    ("fedpha", ["feddyn", "moon"], {**PHA, "feddyn": {"alpha": 0.2}}, PLAIN),
    ("promptfl", ["fedntd", "fedopt"], {**T, "fedopt": {"tau": 0.01}}, TWO),
    ("fedpha", ["fedproto", "fedprox"], {**PHA, "lambda": 2.0}, TWO),
    ("promptfl", ["scaffold", "fedopt"], {**T, "fedopt": {"kind": "momentum"}}, TWO),
    ("promptfl", ["fedopt", "scaffold"], T, {**TWO, "lr": 0.5}),
    ("fedappr", ["scaffold", "moon"], APPR, {**TWO, "lr": 0.3}),
    ("fedotp", ["fedproto", "fedntd"], {**OTP, "lambda": 2.0}, PLAIN),
    ("pfeddc", ["scaffold"], MIX, PLAIN, FEW),
    ("pfeddc", ["feddyn"], MIX, PLAIN, FEW),
    ("pfeddc", ["fedopt"], MIX, PLAIN, FEW),
    ("pfeddc", ["fedntd"], MIX, PLAIN, FEW),
    ("pfeddc", ["moon"], {**MIX}, PLAIN, FEW),
    ("pfeddc", ["moon"], DC, PLAIN, FEW),
    ("pfeddc", ["fedproto"], {**MIX, "of": "image", "lambda": 2.0}, PLAIN, FEW),
]
