"""A small configuration, and runs of it that several tests read."""
import pathlib
import sys

import pytest

import promptfed

CLASSES = ["circle", "square", "star", "house"]
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


def small():
    return {
        "name": "small", "method": "promptfl", "options": {"tokens": 4}, "backbones": ["tiny-vit-b32"],
        "data": {"set": "synthetic", "generator": {"classes": CLASSES, "domains": ["neon"], "train": 8, "test": 4}},
        "partition": {"kind": "iid", "clients": 2}, "train": {"rounds": 3, "lr": 0.05}, "eval": {"every": 2},
    }


@pytest.fixture
def config():
    return small()


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run, which no test changes."""
    return promptfed.run(small(), out=tmp_path_factory.mktemp("runs") / "one", progress=False)


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """A finished sweep of two learning rates and two seeds, which no test changes."""
    return promptfed.sweep(small(), {"train.lr": [0.05, 1e-05]}, seeds=[1, 2], progress=False,
                           out=tmp_path_factory.mktemp("runs") / "sweep")


@pytest.fixture(params=["pandas", "lists"])
def tables(request, monkeypatch):
    """Both forms of tables: with pandas, and as on a machine without it. Returns how a column becomes a list."""
    if request.param == "lists":
        monkeypatch.setitem(sys.modules, "pandas", None)
        return lambda table, column: table[column]
    return lambda table, column: table[column].astype(object).where(table[column].notna(), None).tolist()
