"""GGTPC over several base methods. See methods.py."""
import math

import torch

from methods import C, DASSL, PLAIN, Wrapper, unit

DOMAINS = ["east", "east", "west"]  # of the toy's first three clients


def upright(rows):
    """Each row with its largest entry by absolute value positive."""
    return torch.stack([r * torch.sign(r[r.abs().argmax()]) for r in rows]) if len(rows) else rows


def axes(cov):
    """Unit eigenvectors as rows and eigenvalues, the largest first, without those that rounding to float32 may have made."""
    values, vectors = torch.linalg.eigh(cov)
    values, vectors = values.flip(0), vectors.T.flip(0)
    keep = values > max(0, 2**-23 * math.sqrt(len(cov)) * values[0])
    return upright(vectors[keep]), values[keep]


def f32(t):
    return t.float().double()


class GGTPC(Wrapper):
    defaults = {"stats": "packed", "rank": 64, "min_count": 3, "share": 0.8, "axes": 64, "estimate": "once", "strength": 1.0,
                "renormalise": True, "sampling": "sample", "prototypes": False}

    def statistics(self, r):
        out = {}
        if (r == 0 or self.o["estimate"] == "round") and (self.o["strength"] > 0 or self.o["prototypes"]):
            out["ggtpc"] = self.ask, self.aggregate
        return {**out, **self.inner.statistics(r)}

    def ask(self, env):
        d = env.all_x.shape[1]
        n, mean, cov, factors = torch.zeros(C, 1, dtype=torch.float64), torch.zeros(C, d, dtype=torch.float64), [], []
        upper = torch.triu_indices(d, d)
        for c in range(C):
            x = env.all_x[env.all_y == c]
            if len(x) < self.o["min_count"]:
                cov.append(torch.zeros(len(upper[0]), dtype=torch.float64))
                continue
            n[c], mean[c] = len(x), x.mean(0)
            x = x - x.mean(0)
            cov.append((x.T @ x / len(x))[upper[0], upper[1]])
            _, s, vh = torch.linalg.svd(x / math.sqrt(len(x)), full_matrices=False)
            k = min(self.o["rank"], len(x) - 1, d)
            if k:
                factors.append(s[:k, None] * upright(vh[:k]))
        out = {"n": n, "mean": f32(mean)}
        if self.o["stats"] == "packed":
            return {**out, "cov": f32(torch.stack(cov))}
        return {**out, "factors": f32(torch.cat(factors) if factors else torch.zeros(0, d))}

    def unpack(self, a, c, d):
        """The covariance of class c in an answer."""
        if "cov" in a.extra:
            upper = torch.triu_indices(d, d)
            s = torch.zeros(d, d, dtype=torch.float64)
            s[upper[0], upper[1]] = a.extra["cov"][c]
            return s + s.T - torch.diag(s.diagonal())
        first = sum(max(0, min(self.o["rank"], int(a.extra["n"][i]) - 1, d)) for i in range(c))
        f = a.extra["factors"][first:first + max(0, min(self.o["rank"], int(a.extra["n"][c]) - 1, d))]
        return f.T @ f

    def aggregate(self, server, answers):
        groups = {}
        for a in answers:
            groups.setdefault(a.extra["mean"].shape[1], []).append(a)  # the toy's backbones differ in dimension
        for d, group in groups.items():
            shapes = []
            for c in range(C):
                every = sum(float(a.extra["n"][c]) for a in group)
                chosen, total = [], 0
                for a in sorted(group, key=lambda a: (-float(a.extra["n"][c]), a.client)):
                    if float(a.extra["n"][c]) > 0 and total < self.o["share"] * every - 1e-9:
                        chosen.append(a)
                        total += float(a.extra["n"][c])
                if not chosen:
                    shapes.append((torch.zeros(0, d), torch.zeros(0)))
                    continue
                w = [float(a.extra["n"][c]) / total for a in chosen]
                mu = sum(v * a.extra["mean"][c] for v, a in zip(w, chosen))
                cov = sum(v * (self.unpack(a, c, d) + torch.outer(a.extra["mean"][c] - mu, a.extra["mean"][c] - mu)) for v, a in zip(w, chosen))
                shapes.append(tuple(t[:self.o["axes"]] for t in axes(cov)))
            k = max([1] + [len(s) for _, s in shapes])
            prior = {"axes": torch.zeros(C, k, d, dtype=torch.float64), "sizes": torch.zeros(C, k, dtype=torch.float64)}
            for c, (u, s) in enumerate(shapes):
                prior["axes"][c, :len(s)], prior["sizes"][c, :len(s)] = u, s
            prior = prior if self.o["strength"] > 0 else {}
            if len(groups) == 1:
                server.down.update(prior)
            for a in group:
                each = server.each.setdefault(a.client, {})
                if len(groups) > 1:
                    each.update(prior)
                if self.o["prototypes"]:
                    mean, label = [], []
                    for c in range(C):
                        for name in sorted(set(DOMAINS) - {DOMAINS[a.client]}):
                            there = [b for b in group if DOMAINS[b.client] == name and float(b.extra["n"][c]) > 0]
                            if there:
                                total = sum(float(b.extra["n"][c]) for b in there)
                                mean.append(sum(float(b.extra["n"][c]) * b.extra["mean"][c] for b in there) / total)
                                label.append(c)
                    each["prototypes/mean"] = torch.stack(mean) if mean else torch.zeros(0, d, dtype=torch.float64)
                    each["prototypes/label"] = torch.tensor(label, dtype=torch.int64)

    def needs(self):
        out = ["axes", "sizes"] if self.o["strength"] > 0 else []
        return out + (["prototypes/mean", "prototypes/label"] if self.o["prototypes"] else [])

    def begin(self, env, p):
        self.inner.begin(env, p)
        prior = {}
        for n in self.needs():
            if n in env.down and self.o["estimate"] == "once":
                env.kept[n] = env.down[n]
            prior[n] = env.down[n] if n in env.down else env.kept[n]
        env.memo["prior"] = prior
        env.memo["class"] = torch.cat([env.all_y, prior["prototypes/label"]]) if self.o["prototypes"] else env.all_y

    def order(self, env):
        label = env.memo["class"].tolist()
        if self.o["sampling"] == "none":
            out = self.inner.order(env)
            if len(label) > env.n:
                out = out + list(range(env.n, len(label)))
                key = [env.rand.uniform() for _ in label]
                out = sorted(out, key=lambda row: key[row])[:env.n]
            return out
        count = [int((env.all_y == c).sum()) for c in range(C)]
        weights = []
        for i, c in enumerate(label):
            w = max(count) / count[c] if i < env.n else max(count)
            weights.append(w / count[c] if i < env.n and self.o["sampling"] == "class" else w)
        out = []
        for _ in range(env.n):
            at, row = env.rand.uniform() * sum(weights), 0
            while sum(weights[:row + 1]) <= at:
                row += 1
            out.append(row)
        return out

    def batch(self, env, rows):
        x, y, patches, pixels = (t.clone() for t in self.inner.batch(env, [r if r < env.n else 0 for r in rows]))
        prior, spread = env.memo["prior"], self.o["strength"] > 0
        for i, r in enumerate(rows):
            if r >= env.n:
                x[i], y[i] = prior["prototypes/mean"][r - env.n], env.memo["class"][r]
                if self.o["renormalise"]:
                    x[i] = unit(x[i])
        if spread:
            u, s = prior["axes"], prior["sizes"]
            eps = torch.tensor([[env.rand.normal() for _ in range(s.shape[1])] for _ in rows], dtype=torch.float64)
            env.draws["clean"], env.draws["eps"] = x.clone(), eps
            if hasattr(self.base(), "see"):
                env.draws["noise"] = torch.zeros_like(x)
            for i in range(len(rows)):
                noise = self.o["strength"] * (eps[i] * s[y[i]].sqrt()) @ u[y[i]]
                if "noise" in env.draws:
                    env.draws["noise"][i] = noise
                x[i] = unit(x[i] + noise) if self.o["renormalise"] else x[i] + noise
                patches[i] = unit(patches[i] + noise) * patches[i].norm(dim=1, keepdim=True)
        for i, r in enumerate(rows):
            if r >= env.n:
                patches[i] = x[i]
        return x, y, patches, pixels

    def base(self):
        m = self.inner
        while isinstance(m, Wrapper):
            m = m.inner
        return m

    def loss(self, env, p):
        """Where the image tower runs in the step, what it sees gets the noise."""
        if "noise" not in env.draws:
            return self.inner.loss(env, p)
        base, see = self.base(), self.base().see
        base.see = lambda e, prompt: unit(see(e, prompt) + e.draws["noise"]) if self.o["renormalise"] else see(e, prompt) + e.draws["noise"]
        try:
            return self.inner.loss(env, p)
        finally:
            del base.see

    def merge(self, r, server, ups):
        self.inner.merge(r, server, ups)
        if self.o["estimate"] == "once":
            for n in self.needs():
                server.down.pop(n, None)
                for u in ups:
                    server.each.get(u.client, {}).pop(n, None)


WRAPPERS = {"ggtpc": GGTPC}
ALIKE = {"alike": True, "sizes": [13, 9, 10]}
PHA = {"global_tokens": 3, "local_tokens": [2, 4, 3], "ratio": 0.5, "projector": "exact-null", "svd_every": "step"}
CASES = [
    ("promptfl", ["ggtpc"], {"tokens": 2, "min_count": 1}, PLAIN),
    ("promptfl", ["ggtpc"], {"tokens": 2, "sampling": "class"}, PLAIN, ALIKE),
    ("promptfl", ["ggtpc"], {"tokens": 2, "stats": "lowrank", "sampling": "sample"}, DASSL, ALIKE),
    ("promptfl", ["ggtpc"], {"tokens": 2, "stats": "lowrank", "rank": 1, "axes": 2, "renormalise": False, "estimate": "round", "min_count": 2},
     PLAIN, ALIKE),
    ("promptfl", ["ggtpc"], {"tokens": 2, "prototypes": True, "sampling": "sample", "min_count": 1}, PLAIN),
    ("promptfl", ["ggtpc"], {"tokens": 2, "prototypes": True, "sampling": "none", "strength": 0.5, "min_count": 2, "share": 1.0}, DASSL, ALIKE),
    ("promptfl", ["ggtpc"], {"tokens": 2, "prototypes": True, "sampling": "class", "renormalise": False, "min_count": 1}, PLAIN, ALIKE),
    ("coop", ["ggtpc"], {"tokens": 2, "strength": 0.0}, {**PLAIN, "epochs": 2}),
    ("fedpha", ["ggtpc"], {**PHA, "sampling": "none", "min_count": 1}, PLAIN),
    ("fedotp", ["ggtpc"], {"tokens": 2, "eps": 0.5, "prototypes": True, "min_count": 1, "sampling": "class"}, PLAIN),
    ("fedotp", ["ggtpc"], {"tokens": 2, "eps": 0.5}, PLAIN, ALIKE),
    ("promptfl", ["ggtpc", "fedprox"], {"tokens": 2, "min_count": 1, "mu": 0.7}, {**PLAIN, "epochs": 2}),
    ("fedpha", ["fedprox", "ggtpc"], {**PHA, "min_count": 1, "mu": 0.5}, DASSL),
    ("pfeddc", ["ggtpc"], {"text_tokens": 2, "vision_tokens": 2, "min_count": 1}, PLAIN),
    ("fedvpt", ["ggtpc", "fedprox"], {"vision": "pixels", "min_count": 1, "renormalise": False, "sampling": "sample", "mu": 0.5}, PLAIN),
    ("promptfl", ["scaffold", "ggtpc"], {"tokens": 2, "min_count": 1}, PLAIN),
    ("promptfl", ["ggtpc", "moon"], {"tokens": 2, "min_count": 1, "sampling": "none"}, PLAIN),
    ("promptfl", ["feddyn", "ggtpc"], {"tokens": 2, "min_count": 1, "sampling": "none"}, PLAIN),
    ("promptfl", ["ggtpc", "fedopt"], {"tokens": 2, "min_count": 1, "sampling": "none"}, PLAIN),
    ("promptfl", ["ggtpc", "fedntd"], {"tokens": 2, "min_count": 1, "sampling": "none"}, PLAIN),
    ("coop", ["ggtpc", "fedproto"], {"tokens": 2, "min_count": 1, "prototypes": True}, PLAIN),
    ("pfeddc", ["fedproto", "ggtpc"], {"text_tokens": 2, "vision_tokens": 2, "min_count": 1, "sampling": "none"}, PLAIN),
]
