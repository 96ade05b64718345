"""Reading of run folders: compared with the program's own exports, and with files written by hand."""
import csv
import json
import shutil
import struct
import subprocess
import sys

import numpy
import pytest

import promptfed
from promptfed import _results
from conftest import CLASSES, REPOSITORY

IMAGE = REPOSITORY / "models/preprocess/testdata/bit.png"


def program(*arguments):
    return subprocess.run([promptfed.program(), *map(str, arguments)], check=True, capture_output=True,
                          encoding="utf-8").stdout


def test_rounds(finished, tables, tmp_path):
    """Every number of the program's CSV export that is not a client's is in the frame."""
    rounds = promptfed.load(finished.folder).rounds
    program("runs", "export", finished.folder, "--out", tmp_path / "rounds.csv")
    compared = 0
    with open(tmp_path / "rounds.csv") as f:
        for row in csv.DictReader(f):
            name = row["name"] if not row["view"] else f"{row['view']}/{row['name']}"
            if row["round"] and not row["client"] and name in rounds:
                assert tables(rounds, name)[int(row["round"]) - 1] == pytest.approx(float(row["value"]), rel=1e-9)
                compared += 1
    assert compared > 40
    assert tables(rounds, "round") == [0, 1, 2]
    assert tables(rounds, "tested") == [False, True, True]
    assert tables(rounds, "global/accuracy")[0] is None  # not tested


def test_clients_and_labels(finished, tables):
    run = promptfed.load(finished.folder)
    info = json.loads((run.folder / "clients.json").read_text())
    assert tables(run.clients, "client") == [0, 1]
    assert tables(run.clients, "train") == [sum(c["train"]) for c in info["clients"]] == [16, 16]
    last = json.loads((run.folder / "rounds.jsonl").read_text().splitlines()[-1])
    for view in ("global", "personal"):
        assert tables(run.clients, "accuracy_" + view) == last["evaluations"][view]["per_client"]
    assert tables(run.labels, "class") == CLASSES * 2
    assert tables(run.labels, "test") == info["clients"][0]["test"] + info["clients"][1]["test"]


def test_clients_that_did_not_answer(finished, tmp_path):
    shutil.copytree(finished.folder, tmp_path / "run")
    lines = (tmp_path / "run/rounds.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    last["answered"], last["unanswered"] = [1], [0]
    last["evaluations"] = {"global": {"accuracy": 0.5, "per_client": [0.5]}}
    (tmp_path / "run/rounds.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    clients = promptfed.load(tmp_path / "run").clients
    assert clients["accuracy_global"].tolist()[1] == 0.5 and numpy.isnan(clients["accuracy_global"][0])


def test_confusion(finished, tables):
    run = promptfed.load(finished.folder)
    counts = numpy.array([tables(run.confusion("global"), c) for c in CLASSES]).T  # row: class
    assert counts.sum(1).tolist() == [4, 4, 4, 4]  # 4 test images of a class
    per_class = json.loads((run.folder / "confusion.json").read_text())["global"]["per_class"]
    assert (counts.diagonal() / 4).tolist() == per_class
    assert counts.trace() / counts.sum() == run.summary["evaluations"]["global"]["accuracy_weighted"]
    with pytest.raises(promptfed.Error, match="confusion.json has no evaluation mine"):
        run.confusion("mine")


def test_a_class_may_be_called_as_a_column(monkeypatch, finished, tmp_path):
    answer = {"image": "a.png", "class": "image", "probabilities": {"class": 0.25, "image": 0.75}}
    monkeypatch.setattr(_results, "ask", lambda _: [answer])
    assert list(_results._predict([], ["a.png"])) == ["image", "class", "class class", "class image"]
    shutil.copytree(finished.folder, tmp_path / "run")
    file = tmp_path / "run/confusion.json"
    file.write_text(file.read_text().replace("circle", "class"))
    assert list(promptfed.load(tmp_path / "run").confusion().columns) == ["class class", *CLASSES[1:]]


def test_prompts(finished):
    seen = json.loads(program("inspect", finished.folder / "prompts.safetensors", "--json"))["dtypes"]
    assert seen == [{"dtype": "F32", "tensors": 3, "elements": 3 * 4 * 96, "bytes": 4 * 3 * 4 * 96}]
    assert {name: (p.shape, str(p.dtype)) for name, p in finished.prompts.items()} == {
        name: ((4, 96), "float32") for name in ("shared/ctx", "client/0/own/ctx", "client/1/own/ctx")}
    mean = (finished.prompts["client/0/own/ctx"] + finished.prompts["client/1/own/ctx"]) / 2  # of as many examples each
    numpy.testing.assert_allclose(finished.prompts["shared/ctx"], mean, rtol=1e-5, atol=1e-7)


def test_embeddings(config, tmp_path):
    run = promptfed.run(config, out=tmp_path / "run", progress=False, eval__embeddings=8)
    features = run.embeddings
    assert sorted(features["tiny-vit-b32/label"].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    numpy.testing.assert_allclose(numpy.linalg.norm(features["tiny-vit-b32/text/end"], axis=1), 1, rtol=1e-5)


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_safetensors_by_hand(tmp_path):
    file = tmp_path / "a.safetensors"
    file.write_bytes(safetensors({
        "__metadata__": {"a": "b"}, "x": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "n": {"dtype": "I64", "shape": [1], "data_offsets": [8, 16]}, "one": {"dtype": "F32", "shape": [],
                                                                            "data_offsets": [16, 20]}},
        struct.pack("<ffqf", 1.5, -2, 7, 0.25)))
    got = _results.read_safetensors(file)
    assert {k: v.tolist() for k, v in got.items()} == {"x": [[1.5], [-2]], "n": [7], "one": 0.25}
    got["x"][0, 0] = 3  # own memory
    whole = file.read_bytes()
    for broken in (b"", whole[:20], whole[:-8], whole.replace(b"F32", b"F16"), whole.replace(b"[2, 1]", b"[3, 1]"),
                   b"\xff" * 40, struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 8) + b'{"x": 1}'):
        file.write_bytes(broken)
        with pytest.raises(promptfed.Error, match="a.safetensors is no safetensors file"):
            _results.read_safetensors(file)


def test_metric(finished):
    assert finished.metric("personal/f1@last2") == pytest.approx(
        sum(r["evaluations"]["personal"]["f1"] for r in finished.records[1:]) / 2)
    assert finished.metric("attack-success") is None
    with pytest.raises(promptfed.Error, match='--metric: unknown metric "nonsense"'):
        finished.metric("nonsense")


def test_predict_and_export(finished, tables, tmp_path):
    lines = [json.loads(x) for x in program("predict", finished.folder, "--client", 1, IMAGE, "--json").splitlines()]
    table = finished.predict(IMAGE, client=1)
    assert tables(table, "class") == [lines[0]["class"]] and tables(table, "image") == [str(IMAGE)]
    assert {c: tables(table, c)[0] for c in CLASSES} == lines[0]["probabilities"]
    classifier = finished.export(tmp_path / "global.onnx")
    assert classifier.about["classes"] == CLASSES and classifier.about["evaluation"] == "global"
    for c in CLASSES:
        assert tables(classifier.predict([IMAGE]), c) == pytest.approx(tables(finished.predict(IMAGE), c), abs=1e-4)
    assert promptfed.load(tmp_path / "global.onnx").about == classifier.about
    with pytest.raises(promptfed.Error, match="client 9|--client 9"):
        finished.predict(IMAGE, client=9)


def test_sweep(swept, tables):
    sweep = promptfed.load(swept.folder)
    assert [(r.seed, r.settings["train.lr"]) for r in sweep] == [(1, 0.05), (2, 0.05), (1, 1e-05), (2, 1e-05)]
    assert len(sweep) == 4 and not sweep.failed
    table = sweep.table("last", "f1")
    assert tables(table, "lr") == ["0.05", "1e-05"] and tables(table, "runs") == [2, 2]
    last = [r.summary["last"] for r in sweep]
    assert tables(table, "last") == pytest.approx([sum(last[:2]) / 2, sum(last[2:]) / 2])
    assert tables(table, "last_std") == pytest.approx([numpy.std(last[:2], ddof=1), numpy.std(last[2:], ddof=1)])
    assert tables(sweep.metric("best"), "best") == [r.metric("best") for r in sweep]
    assert tables(sweep.metric("best"), "seed") == [1, 2, 1, 2]
    assert set(tables(sweep.significance, "a")) == {"0.05"} and set(tables(sweep.significance, "b")) == {"1e-05"}
    assert tables(sweep.table("global/f1@last2"), "global/f1@last2") == pytest.approx(
        [sum(r.metric("global/f1@last2") for r in sweep.runs[i:i + 2]) / 2 for i in (0, 2)])
    assert tables(sweep.table("attack-success"), "attack-success") == [None, None]
    with pytest.raises(promptfed.Error, match='unknown metric "nonsense"'):
        sweep.table("nonsense")


class Axes:
    """Takes what is drawn, in place of matplotlib's axes."""

    def __init__(self):
        self.lines, self.bands = {}, []

    def plot(self, x, y, label):
        self.lines[label] = (x, list(y))

    def fill_between(self, x, low, high, alpha):
        self.bands.append((list(low), list(high)))

    def set(self, **texts):
        self.texts = texts

    def legend(self):
        pass


def test_curves(swept, tables, monkeypatch):
    sweep = promptfed.load(swept.folder)
    curves = sweep.curves("accuracy", "loss")
    tested = [(r.seed, t["round"], t["accuracy"]) for r in sweep for t in r.records if "accuracy" in t]
    loss = tables(curves, "loss")
    assert len(loss) == sum(len(r.records) for r in sweep) and None not in loss
    assert [(s, n, a) for s, n, a in zip(tables(curves, "seed"), tables(curves, "round"), tables(curves, "accuracy"))
            if a is not None] == tested and 0 < len(tested) < len(loss)
    assert tables(curves, "lr") == ["0.05"] * (len(loss) // 2) + ["1e-05"] * (len(loss) // 2)

    axes = sweep.plot(ax=Axes())
    first, second = ([a for s, _, a in tested[:len(tested) // 2] if s == seed] for seed in (1, 2))
    rounds = [n for s, n, _ in tested[:len(tested) // 2] if s == 1]
    assert axes.lines["0.05"][0] == rounds and len(axes.lines) == 2
    assert axes.lines["0.05"][1] == pytest.approx([(a + b) / 2 for a, b in zip(first, second)])
    width = [high - low for low, high in zip(*axes.bands[0])]
    assert width == pytest.approx([abs(a - b) * 2 ** 0.5 for a, b in zip(first, second)])  # 2 |a-b|/sqrt(2)
    assert axes.texts == {"xlabel": "round", "ylabel": "accuracy"}
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(promptfed.Error, match="pip install matplotlib"):
        sweep.plot()


def test_tables_name_labels_and_evaluations(config, tmp_path, tables):
    """Every metric of the tests of significance is a metric of the table, and an axis called method keeps its labels."""
    config.update(options={}, eval={"last": 2}, sweep={"seeds": [1, 2], "axes": [{"name": "method", "points": [
        {"label": "two tokens", "set": {"options.tokens": 2}}, {"label": "four tokens", "set": {"options.tokens": 4}},
        {"label": "FedPHA", "set": {"method": "fedpha"}}]}]})
    sweep = promptfed.sweep(config, out=tmp_path / "sweep", progress=False)
    table = sweep.table("last", "personal@last5")
    assert tables(table, "method") == ["two tokens", "four tokens", "FedPHA"]
    assert tables(table, "view") == ["global", "global", "personal"]
    personal = [r.metric("personal@last5") for r in sweep]
    assert tables(table, "personal@last5") == pytest.approx([sum(personal[i:i + 2]) / 2 for i in (0, 2, 4)])
    assert set(sweep.significance["metric"]) == {"global@last2", "personal@last2"}
    for metric in set(sweep.significance["metric"]):
        assert metric in sweep.report["groups"][0]["metrics"]


def test_compare_and_folders_of_runs(finished, swept, config, tmp_path, tables):
    both = promptfed.compare(finished, swept)
    assert len(both) == 5 and len(tables(both.table(), "method")) == 3
    for name in ("a", "b"):
        promptfed.run(config, name=name, out=tmp_path / name, progress=False, seed=len(name))
    assert [r.folder.name for r in promptfed.load(tmp_path)] == ["a", "b"]
    third = promptfed.sweep(config, {"train.lr": [0.5]}, seeds=[1], out=tmp_path / "third", progress=False)
    merged = promptfed.compare(swept, third, merge=True)
    assert tables(merged.table(), "lr") == ["0.05", "1e-05", "0.5"] and set(zip(merged.significance["a"], merged.significance["b"])) == {
        ("0.05", "1e-05"), ("0.05", "0.5"), ("1e-05", "0.5")}


def test_unfinished_and_failed_runs(finished, swept, tmp_path):
    shutil.copytree(finished.folder, tmp_path / "run")
    (tmp_path / "run/summary.json").unlink()
    with open(tmp_path / "run/rounds.jsonl", "a") as f:
        f.write('{"round": 3, "cl')
    run = promptfed.load(tmp_path / "run")
    assert not run.finished and len(run.records) == 3
    shutil.copytree(swept.folder, tmp_path / "sweep")
    cell = tmp_path / "sweep/0.05/seed-2"
    (cell / "summary.json").unlink()
    (cell / "error.txt").write_text("the disk was full\n")
    sweep = promptfed.load(tmp_path / "sweep")
    assert len(sweep) == 3 and sweep.failed == {cell: "the disk was full"}


def test_other_formats_and_folders(finished, tmp_path):
    with pytest.raises(promptfed.Error, match="gone: no such folder"):
        promptfed.load(tmp_path / "gone")
    with pytest.raises(promptfed.Error, match="no runs|no run"):
        promptfed.load(tmp_path)
    (tmp_path / "a.onnx").write_bytes(b"nothing")
    with pytest.raises(promptfed.Error, match="a.onnx"):
        promptfed.load(tmp_path / "a.onnx")
    for file, old, new, says in (
            ("rounds.jsonl", '"format":2', '"format":3', "rounds.jsonl has format 3, this package reads format 2"),
            ("rounds.jsonl", '"format":2,', "", "rounds.jsonl has format 1"),
            ("summary.json", '"format": 2', '"format": 3', "summary.json has format 3"),
            ("experiment.json", '"version": 1', '"version": 2', "experiment.json: version 2; this package reads 1"),
            ("experiment.json", '"version"', "version", "experiment.json is damaged"),
            ("rounds.jsonl", "}\n", "\n", "rounds.jsonl is damaged")):
        folder = tmp_path / "run"
        shutil.copytree(finished.folder, folder)
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))
        with pytest.raises(promptfed.Error, match=says):
            promptfed.load(folder)
        shutil.rmtree(folder)


def test_names_of_the_package():
    for name in promptfed.__all__:
        assert getattr(promptfed, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        promptfed.nothing


def test_names_that_need_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "promptfed.method", raising=False)
    with pytest.raises(promptfed.Error, match=r"promptfed.Prompt needs PyTorch \(.*\): pip install promptfed\[torch\]"):
        promptfed.Prompt
