"""Starts runs and sweeps."""
from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Mapping, Optional, Union

from . import _program
from ._results import Run, Sweep, load_folder

Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]
"""A configuration: a file, or its keys (docs/configuration.md), nested or dotted."""


def run(config: Config, method: Any = None, *, out: Optional[Union[str, "os.PathLike[str]"]] = None,
        resume: bool = False, force: bool = False, smoke: bool = False, progress: bool = True,
        flags: Iterable[str] = (), **overrides: Any) -> Run:
    """Trains one configuration and returns the finished run.

    config: a YAML file, or a dict of its keys.
    method: the name of a method, the path of a method.onnx, or an object with export(path), such as a promptfed.Method.
    out: folder of the run (default runs/NAME). resume continues it after its last finished round, force replaces it.
    smoke: run the small form that the file describes.
    progress: show the progress; warnings are shown without it too.
    flags: further flags of `promptfed run`, such as ["--track", "tensorboard"].
    overrides: keys of the configuration, with __ for a dot, as in train__rounds=5, or **{"train.rounds": 5}.

    A failure raises Error. KeyboardInterrupt stops the run; the same call with resume=True continues it.
    """
    result = _start("run", config, method, out, resume, force, smoke, progress, flags, overrides)
    if not isinstance(result, Run):
        raise _program.Error(f"{result.folder} has {len(result)} runs: use promptfed.sweep for several")
    return result


def sweep(config: Config, grid: Optional[Mapping[str, Iterable[Any]]] = None, method: Any = None, *,
          seeds: Optional[Iterable[int]] = None, keep: Optional[Mapping[str, Iterable[Any]]] = None,
          jobs: Optional[int] = None, out: Optional[Union[str, "os.PathLike[str]"]] = None, resume: bool = False,
          force: bool = False, smoke: bool = False, progress: bool = True, flags: Iterable[str] = (),
          **overrides: Any) -> Sweep:
    """Trains every cell of a grid and returns the finished sweep.

    config: a file with a section sweep, or a configuration with grid or seeds, which may add axes to a sweep too.
    grid: values by key, as in {"train.lr": [0.01, 0.05]} or {"method": ["promptfl", Mine()]}, where Mine has
    export(path); several keys make every combination.
    seeds: every cell runs with each of them.
    keep: run only these labels of an axis, as in {"method": ["FedPHA"]}.
    jobs: cells at a time (default: as many as the processors allow).

    The others are those of run. If a cell fails, the others run, and then Error is raised; load(out) has the others.
    """
    extra: List[str] = list(flags)
    for axis, labels in (keep or {}).items():
        extra += ["--keep", f"{axis}={','.join(map(str, labels))}"]
    if seeds is not None:
        extra += ["--seeds", ",".join(str(int(s)) for s in seeds)]
    if jobs is not None:
        extra += ["--jobs", str(int(jobs))]
    with tempfile.TemporaryDirectory(prefix="promptfed-") as folder:
        for key, values in (grid or {}).items():
            extra += ["--grid", f"{_key(key)}={','.join(_yaml(_exported(v, folder)) for v in values)}"]
        result = _start("sweep", config, method, out, resume, force, smoke, progress, extra, overrides)
    return result if isinstance(result, Sweep) else Sweep(result.folder)


def _start(command: str, config: Config, method: Any, out: Any, resume: bool, force: bool, smoke: bool, progress: bool,
           flags: Iterable[str], overrides: Mapping[str, Any]) -> Union[Run, Sweep]:
    with tempfile.TemporaryDirectory(prefix="promptfed-") as folder:
        words: List[Any] = [command]
        if isinstance(config, Mapping):
            path = Path(folder, "config.yaml")
            path.write_text(_yaml(config), encoding="utf-8")  # YAML contains JSON
            words.append(path)
        else:
            words.append(os.fspath(config))
        for key, value in [*_method(method, folder), *overrides.items()]:
            words += ["--set", f"{_key(key)}={_yaml(value)}"]
        words += ["--out", os.fspath(out)] if out is not None else []
        words += [f"--{name}" for name, on in (("resume", resume), ("force", force), ("smoke", smoke)) if on]
        return load_folder(_program.start([*words, *flags], progress)["folder"])


def _exported(value: Any, folder: str) -> Any:
    """Returns the file of an object with export(path), which names the method in results, and other values as they are."""
    if not hasattr(value, "export"):
        return value
    name, more = type(value).__name__, ""
    while Path(folder, f"{name}{more}.onnx").exists():  # another object of the class
        more = str(int(more or 1) + 1)
    path = Path(folder, f"{name}{more}.onnx")
    value.export(os.fspath(path))
    return path


def _method(method: Any, folder: str) -> Iterator[Any]:
    """Yields the keys that choose a method. A run keeps the content of a file, so that the file may be temporary."""
    if method is None:
        return
    method = _exported(method, folder)
    if isinstance(method, os.PathLike) or str(method).endswith(".onnx"):
        yield "method", "onnx"
        yield "options.file", os.fspath(method)
    else:
        yield "method", method


def _key(key: str) -> str:
    return key.replace("__", ".")


def _yaml(value: Any) -> str:
    """Returns JSON, which YAML contains, of values that may hold paths and NumPy numbers and arrays."""
    def plain(v: Any) -> Any:
        for convert in (lambda: os.fspath(v), lambda: v.tolist()):
            with contextlib.suppress(TypeError, AttributeError):
                return convert()
        raise TypeError(f"{type(v).__name__} {v!r} is no value of a configuration")
    return json.dumps(value, default=plain, ensure_ascii=False, allow_nan=False)
