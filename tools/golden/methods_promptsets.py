"""Sets of text prompts: class-specific ones of CoOp and PromptFL; PromptFolio. See methods.py."""
from methods import DASSL, PLAIN, SCALE, W, Method, text, unit
from methods_wrappers import TWO

EACH = {"tokens": 2, "class_specific": True}
FEW = {"sizes": [2, 2, 1]}  # of which none has class 3


class PromptFolio(Method):
    """Section 3."""
    shared, private = ["global"], ["local"]
    defaults = {"tokens": 8, "theta": 0.4, "renorm": False, "position": "end"}

    def init(self, name, client):
        return (10 if name == "global" else 20 + client, 0.6, self.o["tokens"], W)

    def logits(self, env, p):
        g, own = (text(p[n], env.backbone, 0, self.o["position"]) for n in ("global", "local"))
        t = (1 - self.o["theta"]) * g + self.o["theta"] * own
        return SCALE * env.x @ (unit(t) if self.o["renorm"] else t).T


METHODS = {"promptfolio": PromptFolio}
CASES = [
    ("coop", [], EACH, TWO),
    ("coop", [], {**EACH, "position": "middle"}, DASSL),
    ("promptfl", [], {**EACH, "position": "front"}, DASSL),
    ("promptfl", [], {**EACH, "class_average": "owners"}, TWO),
    ("promptfl", [], {**EACH, "class_average": "owners"}, PLAIN, FEW),
    ("promptfl", ["fedprox"], {**EACH, "mu": 0.7}, TWO),
    ("promptfolio", [], {"tokens": 3}, TWO),
    ("promptfolio", [], {"tokens": 2, "theta": 0.2, "renorm": True, "position": "middle"}, DASSL),
]
