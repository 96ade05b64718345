"""Methods that put prompts into the image tower: FedVPT, FedPR, FedHPL, pFedDC. See methods.py."""
import math

import torch

from methods import C, DASSL, F, PLAIN, SCALE, W, Method, sentences, text, vision

V, S, BLOCKS = 4, 2, 3  # width of the toy's image tokens, side of its images, blocks of its transformer
VISUAL = {"vision": "shallow", "vision_tokens": 16}


class Visual(Method):
    """A prompt of the image tower; what else there is says a subclass."""

    shared = ["prompt"]
    defaults = VISUAL

    def shape(self):
        o = self.o
        return {"shallow": (o["vision_tokens"], V), "deep": (BLOCKS, o["vision_tokens"], V), "pixels": (3, S, S)}[o["vision"]]

    def init(self, name, client):
        return 13 + (client or 0), 0.6, *self.shape()

    def see(self, env, prompt):
        """Image features [B,D] with a prompt."""
        if self.o["vision"] == "shallow":
            return vision(env.pixels, env.backbone, tokens=prompt, normed=True)
        if self.o["vision"] == "deep":
            return vision(env.pixels, env.backbone, tokens=prompt[0], deep=list(prompt[1:]), normed=True)
        return vision(env.pixels, env.backbone, prompt=prompt)

    def logits(self, env, p):
        return SCALE * self.see(env, p["prompt"]) @ sentences(env.backbone).T


class FedPR(Visual):
    defaults = {**VISUAL, "vision": "deep", "ratio": 0.8, "projector": "exact-null"}

    def transforms(self, env):
        """B Bᵀ / ‖B Bᵀ‖_F of each block's received prompt."""
        out = []
        for p in env.received["prompt"].reshape(-1, self.o["vision_tokens"], V):
            v = torch.linalg.svd(p, full_matrices=False)[2].T
            if v.shape[1] < V:  # completes the null space
                v = torch.cat([v, torch.linalg.qr(p.T, mode="complete")[0][:, v.shape[1]:]], dim=1)
            first = int(V * (1 - self.o["ratio"]))
            if self.o["projector"] == "exact-null":
                first = min(first, int(torch.linalg.matrix_rank(p)))
            b = v[:, first:]
            out.append(b @ b.T / torch.linalg.matrix_norm(b @ b.T))
        return torch.stack(out)

    def loss(self, env, p):
        t = self.transforms(env)
        env.draws["projector"] = t if self.o["vision"] == "deep" else t[0]
        return super().loss(env, p)

    def adjust(self, env, grads):
        g = grads["prompt"]
        g.copy_((g.reshape(-1, self.o["vision_tokens"], V) @ self.transforms(env)).reshape(g.shape))


class FedHPL(Visual):
    shared, private = [], ["prompt"]
    defaults = {**VISUAL, "gamma": 1.0, "temperature": 4.5, "weighting": "examples"}

    def start(self, server):
        server.down = {"hpl/logits": torch.zeros(C, C).double(), "hpl/n": torch.zeros(C, 1).double()}

    def loss(self, env, p):
        o, z, out = self.o, self.logits(env, p), 0
        for i, y in enumerate(env.y):
            if env.down["hpl/n"][y, 0] > 0:
                teacher = torch.softmax(env.down["hpl/logits"][y] / o["temperature"], 0)
                student = torch.log_softmax(z[i] / o["temperature"], 0)
                out = out + F.kl_div(student, teacher, reduction="sum")
        return F.cross_entropy(z, env.y) + o["gamma"] * o["temperature"] ** 2 * out / len(env.y)

    def finish(self, env, p, up):
        z = self.logits(env, p)
        right = z.argmax(1) == env.y
        up.extra = {"hpl/logits": torch.zeros(C, C).double(), "hpl/n": torch.zeros(C, 1).double()}
        for c in range(C):
            mine = z[right & (env.y == c)]
            up.extra["hpl/n"][c] = len(mine)
            if len(mine):
                up.extra["hpl/logits"][c] = mine.mean(0)

    def merge(self, r, server, ups):
        logits, n = server.down["hpl/logits"].clone(), server.down["hpl/n"].clone()
        for c in range(C):
            have = [u for u in ups if u.extra["hpl/n"][c] > 0]
            if have:
                k = [1.0 if self.o["weighting"] == "uniform" else float(u.extra["hpl/n"][c]) for u in have]
                logits[c] = sum(a * u.extra["hpl/logits"][c] for a, u in zip(k, have)) / sum(k)
                n[c] = sum(u.extra["hpl/n"][c] for u in have)
        server.down = {"hpl/logits": logits, "hpl/n": n}


class PFedDC(Visual):
    defaults = {**VISUAL, "text_tokens": 16, "attention": "both"}

    def __init__(self, o):
        super().__init__(o)
        self.shared, self.private = [], []
        for tower in ("text", "image"):
            self.shared.append(tower + "/shared")
            if self.o["attention"] in ("both", tower):
                self.private += [tower + "/own"] + [f"att/{tower}/{part}" for part in "qkvo"]

    def init(self, name, client):
        tower, part = name.split("/")[-2:]
        salt = 40 + 10 * (client or 0) + "shared own q k v o".split().index(part) + (100 if tower == "image" else 0)
        shape = (self.o["text_tokens"], W) if tower == "text" else self.shape()
        if part in ("shared", "own"):
            return salt, 0.6, *shape
        return salt, 0.8, shape[-1], shape[-1]

    def fuse(self, p, tower):
        shared = p[tower + "/shared"]
        if self.o["attention"] not in ("both", tower):
            return shared
        own = p[tower + "/own"]
        if own.dim() == 3:
            return torch.stack([self.attend(p, tower, a, b) for a, b in zip(own, shared)])
        return self.attend(p, tower, own, shared)

    def attend(self, p, tower, x, y):
        """Of two prompts [P,w]."""
        q, k, v = (t @ p[f"att/{tower}/{n}"] for t, n in ((x, "q"), (y, "k"), (y, "v")))
        return x + torch.softmax(q @ k.T / math.sqrt(q.shape[1]), 1) @ v @ p[f"att/{tower}/o"]

    def features(self, env, p):
        return text(self.fuse(p, "text"), env.backbone)

    def logits(self, env, p):
        return SCALE * self.see(env, self.fuse(p, "image")) @ self.features(env, p).T


METHODS = {"fedvpt": Visual, "fedpr": FedPR, "fedhpl": FedHPL, "pfeddc": PFedDC}
DC, TWICE = {"text_tokens": 3, "vision_tokens": 2}, {**PLAIN, "epochs": 2}
ALIKE, FEW = {"alike": True}, {"sizes": [5, 3, 4]}
CASES = [
    ("fedvpt", [], {"vision_tokens": 3}, PLAIN),
    ("fedvpt", [], {"vision_tokens": 2}, DASSL),
    ("fedvpt", [], {"vision": "deep", "vision_tokens": 2}, PLAIN, ALIKE),
    ("fedvpt", [], {"vision": "pixels"}, DASSL),
    ("fedvpt", ["fedprox"], {"vision_tokens": 2, "mu": 0.7}, TWICE),
    ("fedpr", [], {"vision_tokens": 2}, PLAIN, ALIKE),
    ("fedpr", [], {"vision_tokens": 1, "ratio": 0.5}, PLAIN, ALIKE),
    ("fedpr", [], {"vision_tokens": 1, "ratio": 0.5, "projector": "code"}, DASSL, ALIKE),
    ("fedpr", [], {"vision_tokens": 3, "ratio": 0.5}, DASSL, ALIKE),
    ("fedpr", [], {"vision": "shallow", "vision_tokens": 1, "ratio": 0.6}, PLAIN),
    ("fedpr", ["fedprox"], {"vision_tokens": 2, "ratio": 0.3, "mu": 0.5}, TWICE, ALIKE),
    ("fedhpl", [], {"vision_tokens": 3}, TWICE),
    ("fedhpl", [], {"vision": "deep", "vision_tokens": 2, "weighting": "uniform", "temperature": 2.0}, TWICE, ALIKE),
    ("fedhpl", [], {"vision": "pixels", "gamma": 2.5}, DASSL),
    ("fedhpl", [], {"vision_tokens": 2, "gamma": 0.0}, PLAIN),
    ("pfeddc", [], DC, PLAIN),
    ("pfeddc", [], DC, {**DASSL, "epochs": 2}, FEW),
    ("pfeddc", [], {**DC, "text_tokens": 2, "vision": "deep"}, {**PLAIN, "lr": 0.02}, {**ALIKE, **FEW}),
    ("pfeddc", [], {**DC, "vision": "pixels"}, PLAIN, FEW),
    ("pfeddc", [], {**DC}, PLAIN, FEW),
    ("pfeddc", [], {**DC, "attention": "text"}, PLAIN, FEW),
    ("pfeddc", [], {**DC, "attention": "image"}, PLAIN, FEW),
    ("pfeddc", [], {**DC, "attention": "none"}, PLAIN, FEW),
    ("pfeddc", ["fedprox"], {**DC, "mu": 0.7}, TWICE, FEW),
]
