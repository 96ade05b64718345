"""Learners with prompts in later blocks, low-rank changes, a prompt for each image or several prompts, averaged. See methods.py."""
import torch

from methods import C, DASSL, F, PLAIN, SCALE, W, Method, Summed, sentences, text, unit, vision, words

V, LAYERS, DIM = 4, 3, 5
PETS = "a photo of a {}, a type of pet."


class Learner(Method):
    """A method that shares everything; shapes are by name, first values have the salts 500 on."""

    word = {"tokens": 4, "words": "a photo of a", "init_std": 0.0}

    def __init__(self, o):
        super().__init__(o)
        self.shared = list(self.shapes())

    def init(self, name, client):
        return 500 + list(self.shapes()).index(name), 0.5, *self.shapes()[name]

    def prompt(self, learned):
        """[T,w], or [B,T,w]: what is learned is added to words."""
        sentence, n = self.o["words"], self.o["tokens"]
        w = words(sentence) if sentence else torch.zeros(0, W).double()
        if len(w) <= n:
            return learned + torch.cat([torch.zeros(n - len(w), W).double(), w])
        rest = w[n:] if learned.dim() == 2 else w[n:].expand(len(learned), -1, -1)
        return torch.cat([learned + w[:n], rest], -2)

    def hand(self, env):
        return sentences(env.backbone, {"auto": "a photo of a {}.", "pets": PETS}[self.o["template"]])


class IVLP(Learner):
    defaults = {**Learner.word, "depth": 9, "vision_tokens": 4, "vision_depth": 9, "insert": "promptsrc", "deep_std": 0.02}

    def shapes(self):
        o, out = self.o, {"text/prompt": (self.o["tokens"], W)}
        if o["depth"] > 1:
            out["text/deep"] = (min(o["depth"], LAYERS) - 1, o["tokens"], W)
        if o["vision_depth"] > 0:
            out["image/prompt"] = (o["vision_tokens"], V)
        if o["vision_depth"] > 1:
            out["image/deep"] = (min(o["vision_depth"], LAYERS) - 1, o["vision_tokens"], V)
        return out

    def texts(self, env, p):
        return text(self.prompt(p["text/prompt"]), env.backbone, deep=list(p.get("text/deep", [])), bare=self.o["insert"] == "fedtpg")

    def images(self, env, p):
        if not self.o["vision_depth"]:
            return env.x
        return vision(env.pixels, env.backbone, p["image/prompt"], list(p.get("image/deep", [])), normed=self.o["insert"] == "fedtpg")

    def logits(self, env, p):
        return SCALE * self.images(env, p) @ self.texts(env, p).T


class PromptSRC(Summed, IVLP):
    defaults = {**IVLP.defaults, "ensemble": ["imagenet-7"], "text_weight": 25.0, "image_weight": 10.0, "kl_weight": 1.0,
                "gpa": "rounds", "gpa_mean": 0.75, "gpa_std": 0.05}
    selected = ["itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.", "a {} in a video game.", "art of the {}.",
                "a photo of the small {}."]

    def terms(self, env, p):
        o, z = self.o, self.logits(env, p)
        list_ = [t for e in o["ensemble"] for t in (self.selected if e == "imagenet-7" else [e])]
        hand = unit(sum(sentences(env.backbone, t, raw=True) for t in list_))
        q0, q = (SCALE * env.x @ hand.T).log_softmax(-1), z.log_softmax(-1)
        out = {"cross entropy": F.cross_entropy(z, env.y), "text features": o["text_weight"] * F.l1_loss(self.texts(env, p), hand)}
        if o["vision_depth"]:
            out["image features"] = o["image_weight"] * F.l1_loss(self.images(env, p), env.x)
        out["class probabilities"] = o["kl_weight"] * F.kl_div(q, q0, log_target=True, reduction="none").mean()
        return out

    def merge(self, r, server, ups):
        super().merge(r, server, ups)
        if self.o["gpa"] == "none":
            return
        t = torch.tensor([1.0, 2.0]).double()  # two rounds
        a = torch.exp(-(t - 2 * self.o["gpa_mean"]) ** 2 / (2 * (2 * self.o["gpa_std"]) ** 2))
        a = a / a.sum()
        server.kept["gpa rounds"] = torch.tensor([r + 1.0]).double()
        for n, v in server.shared.items():
            server.kept["gpa/" + n] = server.kept.get("gpa/" + n, 0) + a[r] * v
        if r == 1:
            server.shared = {n: server.kept["gpa/" + n] for n in server.shared}


class MaPLe(Learner):
    defaults = {**Learner.word, "tokens": 2, "depth": 9, "deep_std": 0.02}

    def shapes(self):
        n = min(self.o["depth"], LAYERS) - 1
        out = {"text/prompt": (self.o["tokens"], W), "couple/w": (V, W), "couple/b": (V,)}
        if n:
            out |= {"text/deep": (n, self.o["tokens"], W), "couple/deep/w": (n, V, W), "couple/deep/b": (n, V)}
        return out

    def logits(self, env, p):
        ctx = self.prompt(p["text/prompt"])
        deep = list(p.get("text/deep", []))
        images = [F.linear(x, w, b) for x, w, b in zip(deep, p.get("couple/deep/w", []), p.get("couple/deep/b", []))]
        first = F.linear(ctx[: self.o["tokens"]], p["couple/w"], p["couple/b"])
        return SCALE * vision(env.pixels, env.backbone, first, images) @ text(ctx, env.backbone, deep=deep).T


class KgCoOp(Summed, Learner):
    defaults = {**Learner.word, "template": "auto", "lambda": 8.0}

    def shapes(self):
        return {"ctx": (self.o["tokens"], W)}

    def logits(self, env, p):
        return SCALE * env.x @ text(self.prompt(p["ctx"]), env.backbone).T

    def terms(self, env, p):
        t, h = text(self.prompt(p["ctx"]), env.backbone), self.hand(env)
        far = self.o["lambda"] * (1 - F.cosine_similarity(t, h)).mean()
        return {"cross entropy": F.cross_entropy(self.logits(env, p), env.y), "knowledge": far}


class ProGrad(Learner):
    defaults = {**Learner.word, "tokens": 16, "template": "auto", "lambda": 1.0, "tau": 1.0, "variant": "project"}
    shapes, logits = KgCoOp.shapes, KgCoOp.logits

    def second(self, env, p):
        tau = self.o["tau"]
        q0 = (SCALE * env.x @ self.hand(env).T / tau).softmax(-1)
        return -tau**2 * (q0 * (self.logits(env, p) / tau).log_softmax(-1)).sum(-1).mean()

    def loss(self, env, p):
        env.beside = torch.autograd.grad(self.second(env, p), p["ctx"])[0]
        more = self.o["lambda"] * self.second(env, p) if self.o["variant"] == "add" else 0
        return super().loss(env, p) + more

    def adjust(self, env, grads):
        a, b = grads["ctx"], env.beside
        if self.o["variant"] == "project" and (a * b).sum() < 0:
            a -= self.o["lambda"] * (a * b).sum() / (b * b).sum() * b


class CoCoOp(Learner):
    defaults = {**Learner.word, "reduce": 16}

    def shapes(self):
        h = max(1, DIM // self.o["reduce"])
        return {"ctx": (self.o["tokens"], W), "meta/1/w": (h, DIM), "meta/1/b": (h,), "meta/2/w": (W, h), "meta/2/b": (W,)}

    def logits(self, env, p):
        shift = F.linear(F.linear(env.x, p["meta/1/w"], p["meta/1/b"]).relu(), p["meta/2/w"], p["meta/2/b"])
        return torch.stack([SCALE * f @ text(self.prompt(p["ctx"] + h), env.backbone).T for f, h in zip(env.x, shift)])


class FedLoRA(Learner):
    defaults = {"template": "auto", "towers": "text", "maps": ["all"], "rank": 2, "alpha": 16.0, "loss": "contrastive"}

    def sites(self):
        for tower, w in (("text", W), ("image", V)):
            if self.o["towers"] in (tower, "both"):
                for m in ("q", "k", "v", "out", "up", "down", "head"):
                    if m in self.o["maps"] or "all" in self.o["maps"]:
                        yield tower, m, *((1, w, DIM) if m == "head" else (LAYERS, w, w))

    def shapes(self):
        out = {}
        for tower, m, n, i, o in self.sites():
            out |= {f"{tower}/{m}/a": (n, i, self.o["rank"]), f"{tower}/{m}/b": (n, self.o["rank"], o)}
        return out

    def changes(self, p, tower):
        s = self.o["alpha"] / self.o["rank"]
        return [(i, m, p[f"{tower}/{m}/a"][i], s * p[f"{tower}/{m}/b"][i]) for t, m, n, _, _ in self.sites() if t == tower for i in range(n)]

    def pair(self, env, p):
        template = {"auto": "a photo of a {}.", "pets": PETS}[self.o["template"]]
        image = env.x if self.o["towers"] == "text" else vision(env.pixels, env.backbone, changes=self.changes(p, "image"))
        return image, sentences(env.backbone, template, self.changes(p, "text"))

    def logits(self, env, p):
        image, t = self.pair(env, p)
        return SCALE * image @ t.T

    def loss(self, env, p):
        if self.o["loss"] == "ce":
            return super().loss(env, p)
        image, t = self.pair(env, p)
        z, own = SCALE * image @ t[env.y].T, torch.arange(len(env.y))
        return (F.cross_entropy(z, own) + F.cross_entropy(z.T, own)) / 2


class PLOT(Learner):
    defaults = {"tokens": 16, "position": "end", "n": 4, "eps": 0.1, "iters": 100, "threshold": 0.01, "pooled": False}

    def shapes(self):
        return {"prompts": (self.o["n"], self.o["tokens"], W)}

    def logits(self, env, p):
        t = torch.stack([text(x, env.backbone, 0, self.o["position"]) for x in p["prompts"]])
        sim = torch.einsum("bmd,ncd->bcmn", env.patches, t)
        m, n = sim.shape[2:]
        plan = torch.zeros_like(sim)
        with torch.no_grad():
            for b in range(len(sim)):
                for c in range(C):
                    k = torch.exp(-(1 - sim[b, c]) / self.o["eps"])
                    r, q = torch.ones(m).double(), torch.ones(n).double()
                    for _ in range(self.o["iters"]):
                        old, r = r, 1 / m / (k @ q)
                        q = 1 / n / (k.T @ r)
                        if (r - old).abs().mean() < self.o["threshold"]:
                            break
                    plan[b, c] = torch.diag(r) @ k @ torch.diag(q)
        z = SCALE * (plan * sim).sum((2, 3))
        return z + SCALE * env.x @ unit(t.mean(0)).T if self.o["pooled"] else z


class Rescaled(torch.autograd.Function):
    """A product with one factor forward and another one backward."""

    @staticmethod
    def forward(ctx, x, value, slope):
        ctx.slope = slope
        return x * value

    @staticmethod
    def backward(ctx, d):
        return d * ctx.slope, None, None


class PFedMMA(Learner):
    defaults = {"template": "auto", "towers": "both", "blocks": 8, "rank": 32, "alpha": 0.001, "grad_rescale": True}

    def __init__(self, o):
        super().__init__(o)
        self.shared, self.private = ["mid/w", "mid/b"], [n for n in self.shapes() if n[:3] != "mid"]

    def init(self, name, client):
        return super().init(name, client)[0] + 20 * (client or 0), 0.5, *self.shapes()[name]

    def shapes(self):
        n, r = min(self.o["blocks"], LAYERS), self.o["rank"]
        out = {"mid/w": (n, r, r), "mid/b": (n, r)}
        for tower, w in (("text", W), ("image", V)):
            if self.o["towers"] in (tower, "both"):
                out |= {f"{tower}/down/w": (n, r, w), f"{tower}/down/b": (n, r), f"{tower}/up/w": (n, w, r), f"{tower}/up/b": (n, w)}
        return out

    def adapters(self, p, tower):
        if f"{tower}/up/w" not in p:
            return []
        n = len(p["mid/w"])

        def adapter(i):
            def of(x):
                a, rescale = self.o["alpha"], self.o["grad_rescale"]
                x = Rescaled.apply(x, 1.0, a) if rescale else x
                for name in (f"{tower}/down", "mid", f"{tower}/up"):
                    x = F.linear(x if "down" in name else x.relu(), p[name + "/w"][i], p[name + "/b"][i])
                return Rescaled.apply(x, a, 1.0) if rescale else a * x
            return of
        return [(LAYERS - n + i, "adapter", adapter(i), None) for i in range(n)]

    def logits(self, env, p):
        template = {"auto": "a photo of a {}.", "pets": PETS}[self.o["template"]]
        image = vision(env.pixels, env.backbone, changes=self.adapters(p, "image")) if "image/up/w" in p else env.x
        return SCALE * image @ sentences(env.backbone, template, self.adapters(p, "text")).T


class ProDA(Summed, Learner):
    defaults = {"n": 32, "tokens": 16, "position": "mixed", "together": 4, "lambda": 0.1, "init_std": 0.02}

    def shapes(self):
        return {"prompts": (self.o["n"], self.o["tokens"], W)}

    def groups(self):
        n = self.o["n"]
        if self.o["position"] == "end":
            return [("end", 0, n)]
        return [("front", 0, n // 4), ("middle", n // 4, n // 2), ("end", n // 2, n)]

    def logits(self, env, p):
        t = [text(p["prompts"][k], env.backbone, 0, at) for at, lo, hi in self.groups() for k in range(lo, hi)]
        return SCALE * env.x @ torch.stack(t).mean(0).T

    def terms(self, env, p):
        o, t = self.o, []
        for at, lo, hi in self.groups():
            share = o["together"] * (hi - lo) // o["n"]
            t += [text(p["prompts"][lo + ((env.r + env.steps) * share + i) % (hi - lo)], env.backbone, 0, at) for i in range(share)]
        g = torch.stack(t)  # [k,C,D]
        m = g.mean(0)
        d = g - m
        cov = torch.einsum("kid,kjd->ijd", d, d) / len(g)  # [C,C,D]
        own = cov.diagonal(dim1=0, dim2=1).T  # [C,D]
        more = own[env.y][:, None] + own[None] - 2 * cov[env.y]  # [B,C,D]
        z = SCALE * env.x @ m.T + SCALE**2 / 2 * (env.x[:, None] ** 2 * more).sum(-1)
        out = {"cross entropy": F.cross_entropy(z, env.y)}
        if o["lambda"]:
            u = torch.cat([text(x, env.backbone, alone=True) for x in p["prompts"]])
            s = (u @ u.T).abs()
            out["likeness of prompts"] = o["lambda"] * (s.sum() - s.diagonal().sum()) / (o["n"] * (o["n"] - 1))
        return out


METHODS = {"ivlp": IVLP, "promptsrc": PromptSRC, "maple": MaPLe, "kgcoop": KgCoOp, "prograd": ProGrad, "cocoop": CoCoOp, "fedlora": FedLoRA,
           "plot": PLOT, "proda": ProDA, "pfedmma": PFedMMA}
WRAPPERS = {}
ALIKE, TERMS = {"alike": True}, {"terms": True}
SMALL = {"tokens": 2, "words": ""}
CASES = [
    ("ivlp", [], {**SMALL, "vision_tokens": 2}, PLAIN, ALIKE),
    ("ivlp", [], {"depth": 2, "vision_depth": 2, "vision_tokens": 1}, DASSL, ALIKE),
    ("ivlp", [], {"tokens": 2, "depth": 1, "vision_depth": 1, "insert": "fedtpg"}, PLAIN),
    ("maple", [], {}, PLAIN, ALIKE),
    ("maple", [], {**SMALL, "depth": 2}, DASSL, ALIKE),
    ("kgcoop", [], {}, DASSL, TERMS),
    ("kgcoop", [], {**SMALL, "template": "pets"}, PLAIN),
    ("prograd", [], {"tokens": 5}, DASSL),
    ("prograd", [], {"tokens": 2, "lambda": 0.8, "tau": 2.0}, PLAIN),
    ("prograd", [], {"tokens": 2, "lambda": 0.8, "tau": 2.0, "variant": "add"}, PLAIN),
    ("cocoop", [], {"reduce": 2}, DASSL, ALIKE),
    ("cocoop", [], {"tokens": 2, "reduce": 1}, PLAIN, ALIKE),
    ("promptsrc", [], {**SMALL, "vision_tokens": 2, "text_weight": 5.0, "image_weight": 2.0}, PLAIN, {**ALIKE, **TERMS}),
    ("promptsrc", [], {"tokens": 2, "depth": 1, "vision_depth": 1, "gpa_mean": 0.6, "gpa_std": 0.6, "ensemble": ["imagenet-7", PETS]}, DASSL),
    ("promptsrc", [], {"depth": 2, "vision_depth": 0, "gpa": "none"}, PLAIN),
    ("plot", [], {"n": 3, "tokens": 2}, PLAIN),
    ("plot", [], {"n": 2, "tokens": 2, "pooled": True, "eps": 0.3, "threshold": 0.0, "iters": 5}, DASSL),
    ("proda", [], {"n": 8, "tokens": 2}, DASSL, TERMS),
    ("proda", [], {"n": 3, "tokens": 2, "position": "end", "together": 2, "lambda": 0.0}, PLAIN),
    ("pfedmma", [], {"rank": 3, "alpha": 0.1}, DASSL, ALIKE),
    ("pfedmma", [], {"rank": 2, "alpha": 0.5, "towers": "text", "blocks": 2, "grad_rescale": False, "template": "pets"}, PLAIN),
    ("fedlora", [], {"alpha": 1.0}, PLAIN, ALIKE),
    ("fedlora", [], {"maps": ["q", "down"], "alpha": 1.0}, PLAIN),
    ("fedlora", [], {"towers": "both", "maps": ["v", "up", "head"], "loss": "ce", "template": "pets", "alpha": 2.0}, DASSL, ALIKE),
]
