"""Federated prompt learning over frozen vision-language models: starts the program promptfed and reads its results.

    import promptfed
    run = promptfed.run("mine.yaml", train__rounds=5)
    run.rounds, run.clients, run.confusion(), run.prompts

Tables are pandas frames where pandas is installed, and dicts of lists otherwise. docs/python.md has more.
"""
import importlib
from typing import TYPE_CHECKING

from ._program import Error, program, version
from ._results import Classifier, Run, Sweep, compare, load
from ._start import run, sweep

__all__ = ["Classifier", "Error", "Run", "Sweep", "compare", "load", "program", "run", "sweep", "version"]

_torch = dict.fromkeys(("Down", "Method", "Noise", "Parameter", "Prompt", "State", "Up"), ".method")
_torch["export_backbone"] = ".backbone"
if TYPE_CHECKING:
    from .backbone import export_backbone
    from .method import Down, Method, Noise, Parameter, Prompt, State, Up


def __getattr__(name: str):
    """Imports the modules that need PyTorch on the first use of their names."""
    if name not in _torch:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_torch[name], __name__), name)
    except ImportError as e:
        raise Error(f"promptfed.{name} needs PyTorch ({e}): pip install promptfed[torch]") from None
