"""Sets of text prompts: class-specific ones of CoOp and PromptFL. See methods.py."""
from methods import DASSL, PLAIN
from methods_wrappers import TWO

EACH = {"tokens": 2, "class_specific": True}
FEW = {"sizes": [2, 2, 1]}  # of which none has class 3

METHODS = {}
CASES = [
    ("coop", [], EACH, TWO),
    ("coop", [], {**EACH, "position": "middle"}, DASSL),
    ("promptfl", [], {**EACH, "position": "front"}, DASSL),
    ("promptfl", [], {**EACH, "class_average": "owners"}, TWO),
    ("promptfl", [], {**EACH, "class_average": "owners"}, PLAIN, FEW),
    ("promptfl", ["fedprox"], {**EACH, "mu": 0.7}, TWO),
]
