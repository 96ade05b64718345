"""Federated prompt learning over frozen vision-language models: starts the program promptfed and reads its results.

    import promptfed
    run = promptfed.run("mine.yaml", train__rounds=5)
    run.rounds, run.clients, run.confusion(), run.prompts

Tables are pandas frames where pandas is installed, and dicts of lists otherwise. docs/python.md has more.
"""
from ._program import Error, program, version
from ._results import Classifier, Run, Sweep, compare, load
from ._start import run, sweep

__all__ = ["Classifier", "Error", "Run", "Sweep", "compare", "load", "program", "run", "sweep", "version"]


def __getattr__(name: str):
    """Names of promptfed.method, the only module that imports PyTorch, are imported on first use."""
    if not name.startswith("_"):
        from importlib import import_module

        try:
            return getattr(import_module(".method", __name__), name)
        except AttributeError:
            pass
        except ImportError as e:
            if name == "Method":
                raise Error(f"promptfed.Method needs PyTorch ({e}): pip install promptfed[torch]") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
