"""Sets of text prompts: class-specific ones of CoOp and PromptFL; PromptFolio; FedMGP. See methods.py."""
import torch

from methods import DASSL, F, PLAIN, SCALE, W, Method, Summed, text, unit, vision
from methods_deep import V, Learner
from methods_wrappers import TWO

EACH = {"tokens": 2, "class_specific": True}
TERMS = {"terms": True}
FEW = {"sizes": [2, 2, 1]}  # of which none has class 3


class PromptFolio(Method):
    """Section 3."""
    shared, private = ["global"], ["local"]
    defaults = {"tokens": 8, "theta": 0.4, "position": "end"}

    def init(self, name, client):
        return (10 if name == "global" else 20 + client, 0.6, self.o["tokens"], W)

    def logits(self, env, p):
        g, own = (text(p[n], env.backbone, 0, self.o["position"]) for n in ("global", "local"))
        return SCALE * env.x @ ((1 - self.o["theta"]) * g + self.o["theta"] * own).T


class FedMGP(Summed, Method):
    """Eq. 3-9, algorithm 1."""
    defaults = {**Learner.word, "tokens": 2, "groups": 5, "vision_tokens": 2, "exchanged": 2, "lambda": 1.0, "tau": 1.0,
                "score": "scores", "weighting": "examples"}
    prompt = Learner.prompt

    def __init__(self, o):
        super().__init__(o)
        self.size = {"text": (self.o["tokens"], W), "image": (self.o["vision_tokens"], V)}
        if not self.o["vision_tokens"]:
            del self.size["image"]
        self.shared = [t + "/global" for t in self.size]
        self.private = [t + at for t in self.size for at in ("/groups", "/drawn")]

    def init(self, name, client):
        tower, at = name.split("/")
        if at == "groups":
            return (30 + client + 10 * (tower == "image"), 0.5, self.o["groups"], *self.size[tower])
        return (1, 0.0, self.o["exchanged"], *(self.size[tower] if at == "global" else (self.o["groups"],)))

    def begin(self, env, p):
        for t in self.size:
            for i, row in enumerate(p[t + "/drawn"]):
                for j in row.nonzero().flatten():
                    p[t + "/groups"][j] = env.received[t + "/global"][i]
            p[t + "/drawn"] = torch.zeros_like(p[t + "/drawn"])

    def groups(self, env, p):
        texts = [text(self.prompt(x), env.backbone) for x in p["text/groups"]]
        return texts, [vision(env.pixels, env.backbone, x) for x in p["image/groups"]] if "image" in self.size else [env.x] * len(texts)

    def logits(self, env, p):
        q = {t + "/groups": p[t + "/groups"].clone() for t in self.size}
        for t in self.size:
            for i, row in enumerate(p[t + "/drawn"]):
                for j in row.nonzero().flatten():
                    q[t + "/groups"][j] = p[t + "/global"][i]
        texts, images = self.groups(env, q)
        if self.o["score"] == "features":
            return SCALE * unit(sum(images)) @ unit(sum(texts)).T
        return SCALE * sum(f @ t.T for f, t in zip(images, texts)) / len(texts)

    def likeness(self, x):
        g = len(x)
        return self.o["lambda"] * sum(F.cosine_similarity(x[j], x[k]).mean() for j in range(g) for k in range(j)) / (g * (g - 1) / 2)

    def terms(self, env, p):
        texts, images = self.groups(env, p)
        idle = 0 * sum(t.sum() for n, t in p.items() if not n.endswith("/groups"))  # so that all have a gradient
        out = {"cross entropy": idle + sum(F.cross_entropy(SCALE * f @ t.T, env.y) for f, t in zip(images, texts)) / len(texts)}
        if self.o["lambda"]:
            out["likeness of texts"] = idle + self.likeness(texts)
            if "image" in self.size:
                out["likeness of images"] = self.likeness(images)
        return out

    def adjust(self, env, grads):
        env.frozen = [n for n in grads if not n.endswith("/groups")]

    def finish(self, env, p, up):
        for t in self.size:
            sims = torch.zeros(self.o["groups"]).double()
            if env.r:
                whole = (lambda x: self.prompt(x)[: self.o["tokens"]]) if t == "text" else lambda x: x
                last = [whole(x).flatten() for x in env.received[t + "/global"]]
                sims = torch.stack([max(F.cosine_similarity(whole(x).flatten(), y, 0) for y in last) for x in p[t + "/groups"]])
            noise = torch.tensor([env.rand.uniform() for _ in sims]).double()
            drawn = (sims / self.o["tau"] - (-noise.log()).log()).argsort(descending=True)[: self.o["exchanged"]]
            p[t + "/drawn"] = F.one_hot(drawn, len(sims)).double()
            up.shared[t + "/global"] = p[t + "/groups"][drawn]

    def merge(self, r, server, ups):
        w = [1 if self.o["weighting"] == "uniform" else u.n for u in ups]
        server.shared = {n: sum(k * u.shared[n] for k, u in zip(w, ups)) / sum(w) for n in self.shared}


METHODS = {"promptfolio": PromptFolio, "fedmgp": FedMGP}
CASES = [
    ("coop", [], EACH, TWO),
    ("coop", [], {**EACH, "position": "middle"}, DASSL),
    ("promptfl", [], {**EACH, "position": "front"}, DASSL),
    ("promptfl", [], {**EACH, "class_average": "owners"}, TWO),
    ("promptfl", [], {**EACH, "class_average": "owners"}, PLAIN, FEW),
    ("promptfl", ["fedprox"], {**EACH, "mu": 0.7}, TWO),
    ("promptfolio", [], {"tokens": 3}, TWO),
    ("fedmgp", [], {"groups": 3}, TWO),
    ("fedmgp", [], {"groups": 4, "exchanged": 3, "tau": 0.1, "score": "features", "weighting": "uniform"}, DASSL),
    ("fedmgp", [], {"tokens": 3, "words": "", "groups": 3, "vision_tokens": 0, "lambda": 2.0}, TWO, TERMS),
    ("promptfolio", [], {"tokens": 2, "theta": 0.2, "position": "middle"}, DASSL),
]
