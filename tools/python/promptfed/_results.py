"""Reads the folders of runs and sweeps. docs/formats.md describes the files; the program computes every metric."""
from __future__ import annotations

import json
import os
import struct
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from ._program import Error, ask

if TYPE_CHECKING:
    import pandas

FORMAT = 2
"""The format of rounds.jsonl and summary.json that this package reads."""

Table = Union["pandas.DataFrame", Dict[str, list]]
Path_ = Union[str, "os.PathLike[str]"]


def load(path: Path_) -> Union["Run", "Sweep", "Classifier"]:
    """Returns what a folder or file holds: a Run; a Sweep of all runs below a folder, such as those of a sweep or of
    several seeds; or a Classifier, of an ONNX file that `promptfed export` wrote."""
    path = Path(path)
    return Classifier(path) if path.is_file() else load_folder(path)


def load_folder(path: Path_) -> Union["Run", "Sweep"]:
    """Is load for a folder."""
    path = Path(path)
    if not path.is_dir():
        raise Error(f"{path}: no such folder")
    return Run(path) if (path / "experiment.json").exists() else Sweep(path)


class Run:
    """A run folder, finished or not. Shares such as accuracies are in [0,1]; rounds and clients count from 0."""

    def __init__(self, folder: Path_) -> None:
        self.folder = Path(folder).resolve()
        self.records: List[dict] = self._lines("rounds.jsonl")  # a dict a round, as docs/formats.md describes
        self.summary: dict = self._json("summary.json", {})  # empty in an unfinished run
        _known(self.folder / "summary.json", self.summary)
        experiment = self._json("experiment.json")
        if experiment.get("version") != 1:
            raise Error(f"{self.folder / 'experiment.json'}: version {experiment.get('version')}; this package reads 1")
        self.seed: int = experiment["seed"]
        self.settings: dict = {k: _decoded(v) for k, v in experiment["values"].items()}
        """Every key of the configuration that can change a number, with digests in place of names of data and paths."""

    def __repr__(self) -> str:
        return f"<Run {self.folder}: {self.method}, seed {self.seed}, {len(self.records)} rounds>"

    @property
    def method(self) -> str:
        """The base method; a method of a file, or a class, has its name."""
        return self.settings["method"]

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.status()["name"]

    def status(self) -> dict:
        """What `promptfed runs list --json` says: state (running, stalled, stopped, killed, unfinished, failed or done), why,
        last_sign (time of the last sign of life), remaining_seconds (None if unknown), rounds and others."""
        return ask(["runs", "list", self.folder])[0][0]

    @cached_property
    def notes(self) -> List[str]:
        """Notes of a report on the run: warnings, and advice where it ends below zero-shot."""
        return _report([self.folder])[0]["notes"]

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @cached_property
    def rounds(self) -> Table:
        """A row a round with every number of it; global/NAME and personal/NAME are metrics of one evaluation."""
        return table(dict(_numbers(r)) for r in self.records)

    @cached_property
    def clients(self) -> Table:
        """A row a client: backbone, domain, number of examples by split, and accuracies in the newest test."""
        tested: dict = next((r for r in reversed(self.records) if r.get("evaluations")), {})
        rows = []
        for k, c in enumerate(self._json("clients.json")["clients"]):
            rows.append({"client": k, **{key: sum(v) if isinstance(v, list) else v for key, v in c.items()}})
        for view, evaluation in tested.get("evaluations", {}).items():
            values = evaluation.get("per_client") or []
            for k, v in zip(tested.get("answered") or range(len(values)), values):
                rows[k]["accuracy_" + view] = v
        return table(rows)

    @cached_property
    def labels(self) -> Table:
        """A row for each client and class: number of its examples by split."""
        info = self._json("clients.json")
        return table({"client": k, "class": name, **{s: c[s][i] for s in ("train", "val", "test") if s in c}}
                     for k, c in enumerate(info["clients"]) for i, name in enumerate(info["classes"]))

    def confusion(self, view: Optional[str] = None) -> Table:
        """The confusion matrix of the last tested round: a row a class, a column a predicted class, in examples.

        view: global or personal; the default is the run's own evaluation."""
        info = self._json("confusion.json")
        view = view or next((r["view"] for r in reversed(self.records) if "view" in r), "global")
        if view not in info:
            raise Error(f"{self.folder / 'confusion.json'} has no evaluation {view}")
        n = len(info["classes"])
        counts = np.zeros((n, n), int)
        for true, predicted, examples in info[view]["counts"]:
            counts[true, predicted] = examples
        columns = ["class " * (c == "class") + c for c in info["classes"]]
        rows = ({"class": c, **dict(zip(columns, row))} for c, row in zip(info["classes"], counts.tolist()))
        frame = table(rows)
        return frame if isinstance(frame, dict) else frame.set_index("class")

    @cached_property
    def prompts(self) -> Dict[str, np.ndarray]:
        """Learned parameters: shared/NAME, client/K/private/NAME, client/K/own/NAME."""
        return read_safetensors(self.folder / "prompts.safetensors")

    @cached_property
    def embeddings(self) -> Dict[str, np.ndarray]:
        """Features of test images and classes, of a run with eval.embeddings."""
        return read_safetensors(self.folder / "embeddings.safetensors")

    def metric(self, name: str) -> Optional[float]:
        """A metric of docs/evaluation.md, such as f1@last10, computed by the program; None if the run lacks it."""
        return ask(["runs", "list", self.folder, "--metric", name])[0][0]["value"]

    def predict(self, *images: Union[Path_, Sequence[Path_]], client: Optional[int] = None) -> Table:
        """Classifies images, or folders or lists of them: a row an image with its class and the probability of each.

        client: use the classifier of this client; the default is the global one."""
        return _predict([self.folder, *_which(client)], images)

    def export(self, out: Path_, client: Optional[int] = None) -> "Classifier":
        """Writes the classifier of a client, or the global one, as one ONNX file: pixels in, probabilities out."""
        ask(["export", self.folder, *_which(client), "--out", out])
        return Classifier(out)

    def _json(self, name: str, default: Any = None) -> Any:
        path = self.folder / name
        if default is not None and not path.exists():
            return default
        return _parsed(path, _read(path))

    def _lines(self, name: str) -> List[dict]:
        if not (self.folder / name).exists():
            return []
        path = self.folder / name
        complete = _read(path).rpartition(b"\n")[0]  # a crash may have left half a line
        records = [_parsed(path, line) for line in complete.splitlines()]
        for r in records:
            _known(path, r)
        return records


class Classifier:
    """An ONNX file that `promptfed export` wrote."""

    def __init__(self, path: Path_) -> None:
        self.path = Path(path).resolve()
        self.about: dict = ask(["predict", self.path, "--about"])[0]

    def __repr__(self) -> str:
        return f"<Classifier {self.path}>"

    def predict(self, *images: Union[Path_, Sequence[Path_]]) -> Table:
        """Classifies images, or folders or lists of them: a row an image with its class and the probability of each."""
        return _predict([self.path], images)


class Sweep:
    """All runs in and below a folder: those of a sweep, of several seeds, or of several configurations."""

    def __init__(self, *folders: Path_, merge: bool = False) -> None:
        self._folders, self._flags = [Path(f).resolve() for f in folders], ["--merge"] if merge else []
        self.folder = self._folders[0]
        self.report, groups = _report(self._folders, *self._flags)  # as report.json in docs/formats.md
        self._cells = [(g, r["seed"], f) for g, f, r in groups if r["state"] == "done"]
        self.runs: List[Run] = [Run(f) for _, _, f in self._cells]
        self.notes: List[str] = self.report["notes"]
        self.failed: Dict[Path, str] = {f: r.get("why", r["state"]) for _, f, r in groups if r["state"] != "done"}

    def __repr__(self) -> str:
        return f"<Sweep {self.folder}: {len(self.runs)} runs>"

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def table(self, *metrics: str) -> Table:
        """A row for each point of the grid: its labels, its method (unless an axis is called so), its evaluation as
        view, number of runs, and for each metric of docs/evaluation.md (default: last, the final accuracy) the mean
        over seeds and the sample standard deviation, as NAME_std. personal@last5 is a metric of one evaluation; without
        one, a metric is of the row's view."""
        rows, groups = [], self.report["groups"]
        for m in metrics:
            if not any(m in g["metrics"] for g in groups):  # the program computes it, or refuses the name
                other = {(g.get("sweep"), g["name"]): g["metrics"].get(m) for g in _report(
                    self._folders, *self._flags, "--metric", m)[0]["groups"]}
                for g in groups:  # the folders may have other runs by now
                    g["metrics"][m] = other.get((g.get("sweep"), g["name"])) or {}
        for g in groups:
            row = {**g["labels"], "method": g["labels"].get("method", g["method"]), "view": g.get("view"),
                   "runs": len(g["runs"])}
            for m in metrics or ("last",):
                stat = g["metrics"].get(m, {})
                row[m], row[m + "_std"] = stat.get("mean"), stat.get("std_sample")
            rows.append(row)
        return table(rows)

    def metric(self, name: str) -> Table:
        """A row for each finished run: its labels, its seed and a metric of docs/evaluation.md, such as f1@last10."""
        values = ask(["runs", "list", *self._folders, "--metric", name])[0]
        found = {Path(r["folder"]).resolve(): r["value"] for r in values}
        return table({**g["labels"], "seed": seed, name: found.get(f)} for g, seed, f in self._cells)

    def _values(self, columns: Sequence[str]) -> Iterator[Tuple[dict, int, int, List[Any]]]:
        """Yields columns of Run.rounds: of each finished run its group, its seed, and the values of a round that has
        one of them."""
        for (group, seed, _), run in zip(self._cells, self.runs):
            for r in run.records:
                numbers = dict(_numbers(r))
                values = [numbers.get(c) for c in columns]
                if any(v is not None for v in values):
                    yield group, seed, r["round"], values

    def curves(self, *columns: str) -> Table:
        """A row for each round of each finished run: its labels, its seed, the round, and columns of Run.rounds
        (default: accuracy), where the round has one of them."""
        columns = columns or ("accuracy",)
        return table({**g["labels"], "seed": seed, "round": n, **dict(zip(columns, values))}
                     for g, seed, n, values in self._values(columns))

    def plot(self, column: str = "accuracy", ax: Any = None) -> Any:
        """Draws a column of Run.rounds by round and returns the axes: a line for each point of the grid, the mean over
        its seeds, in a band of the sample standard deviation. It needs matplotlib, unless axes are given."""
        if ax is None:
            try:
                import matplotlib.pyplot
            except ImportError:
                raise Error("plot needs matplotlib: pip install matplotlib, or give axes that draw") from None
            ax = matplotlib.pyplot.figure().add_subplot()
        lines: Dict[Tuple[Any, str], Dict[int, List[float]]] = {}
        for g, _, n, (value,) in self._values([column]):
            lines.setdefault((g.get("sweep"), g["name"]), {}).setdefault(n, []).append(value)
        for (_, name), rounds in lines.items():
            x = sorted(rounds)
            mean = np.array([np.mean(rounds[n]) for n in x])
            ax.plot(x, mean, label=name)
            if all(len(v) > 1 for v in rounds.values()):
                deviation = np.array([np.std(rounds[n], ddof=1) for n in x])
                ax.fill_between(x, mean - deviation, mean + deviation, alpha=0.2)
        ax.set(xlabel="round", ylabel=column)
        ax.legend()
        return ax

    @property
    def significance(self) -> Table:
        """Tests of the differences between labels of the grid, over pairs of runs (docs/report.md)."""
        return table(self.report["significance"])


def compare(first: Union[Run, Sweep, Path_], *more: Union[Run, Sweep, Path_], merge: bool = False) -> Sweep:
    """Returns several runs, sweeps or folders as one Sweep, whose table compares them.

    merge: take sweeps of the same axes as one, with the points and tests of all."""
    return Sweep(*(f.folder if isinstance(f, (Run, Sweep)) else f for f in (first, *more)), merge=merge)


def table(rows: Iterable[Dict[str, Any]]) -> Table:
    """Returns rows as a pandas frame if pandas is installed, otherwise as a dict of lists, with None where a row lacks
    a column."""
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lists = {key: [row.get(key) for row in rows] for key in columns}
    try:
        import pandas
    except ImportError:
        return lists
    return pandas.DataFrame(lists)


def read_safetensors(path: Path_) -> Dict[str, np.ndarray]:
    """Returns the tensors of a safetensors file that the program wrote: float32 or int64."""
    path = Path(path)
    content = _read(path)
    try:
        (length,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8:8 + length])
        header.pop("__metadata__", None)
        data, tensors = memoryview(content)[8 + length:], {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            kind = {"F32": "<f4", "I64": "<i8"}[entry["dtype"]]
            tensors[name] = np.frombuffer(data[begin:end], kind).reshape(entry["shape"]).copy()
        return tensors
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as e:
        raise Error(f"{path} is no safetensors file of float32 and int64 tensors: {type(e).__name__}: {e}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise Error(f"{path}: {e.strerror}") from None


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a digest
        return text


def _parsed(path: Path, text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as e:
        raise Error(f"{path} is damaged: {e}") from None


def _known(path: Path, record: dict) -> None:
    version = record.get("format", 1) if record else FORMAT
    if version != FORMAT:
        raise Error(f"{path} has format {version}, this package reads format {FORMAT}: load it with the version of "
                    "promptfed that provenance.json names")


def _numbers(record: dict, prefix: str = "") -> Iterator[Tuple[str, Any]]:
    """Yields the single values of a record, with names of nested ones joined by a slash."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _numbers(value, prefix if key == "evaluations" else f"{prefix}{key}/")
        elif not isinstance(value, list) and key != "format":
            yield prefix + key, value


def _report(folders: List[Path], *flags: str) -> Tuple[dict, List[Tuple[dict, Path, dict]]]:
    """Returns the content of a report, and each run of it with its group and its folder."""
    with tempfile.TemporaryDirectory(prefix="promptfed-") as out:
        report = ask(["report", *folders, *flags, "--format", "json", "--out", out])[0]["report"]
        return report, [(g, Path(out, r["folder"]).resolve(), r) for g in report["groups"] for r in g["runs"]]


def _which(client: Optional[int]) -> List[Any]:
    return ["--global"] if client is None else ["--client", client]


def _predict(classifier: List[Any], images: Iterable[Union[Path_, Sequence[Path_]]]) -> Table:
    paths = [p for i in images for p in (i if isinstance(i, (list, tuple)) else [i])]
    answers = ask(["predict", *classifier, *paths])
    return table({"image": a["image"], "class": a["class"], **{  # a class may be called as a column
        "class " * (c in ("image", "class")) + c: p for c, p in a["probabilities"].items()}} for a in answers)
