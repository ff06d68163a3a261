"""Texts to shards of tokens: the same ids as the tokenizers library, the same training as from the texts, hostile files."""

import gzip
import json
import signal
import struct
import subprocess
import time

import numpy as np
import pytest
import tokenizers
from conftest import STORIES, focus_binary
from test_train_weights import TEXT, lines

CONTEXT = 64


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder of texts of every kind, one of them in a subfolder."""
    folder = tmp_path_factory.mktemp("texts")
    documents = [TEXT[7 * i:] + TEXT * (i % 5) + f"The end, number {i}." for i in range(40)]
    (folder / "a.txt").write_text(documents[0])
    (folder / "b.txt.gz").write_bytes(gzip.compress(documents[1].encode()))
    (folder / "c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents[2:30]))
    (folder / "deep").mkdir()
    with gzip.open(folder / "deep/d.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps({"text": text}) + "\n" for text in documents[30:]))
    return folder, documents


def tokenize(focus, source, out, *arguments):
    return focus("convert", "--tokenize", "--tokenizer", STORIES, source, out, *arguments)


def read_shards(folder):
    """(header fields, documents) by an independent reading of docs/formats.md."""
    documents, headers = [], []
    for file in sorted(folder.glob("*.tokens")):
        data = file.read_bytes()
        magic, version, width, tokens, count, vocab, _, _, shard, shards = struct.unpack_from("<8sIIQQQQQII", data)
        assert magic == b"FOCUSTOK" and version == 1
        ends = np.frombuffer(data, "<u8", count, 64)
        ids = np.frombuffer(data, {2: "<u2", 4: "<u4"}[width], tokens, 64 + 8 * count)
        assert len(data) == 64 + 8 * count + width * tokens
        documents += np.split(ids, ends[:-1].astype(int))
        headers.append({"width": width, "vocab": vocab, "shard": shard, "shards": shards, "tokens": tokens})
    return headers, documents


@pytest.mark.parametrize("threads", [1, 3])
def test_ids_are_those_of_the_tokenizers_library(focus, texts, tmp_path, threads):
    folder, documents = texts
    run = tokenize(focus, folder, tmp_path / "shards", "--shard-tokens", 1000, "--threads", threads, "--json")
    assert run.returncode == 0, run.stderr
    headers, found = read_shards(tmp_path / "shards")
    oracle = tokenizers.Tokenizer.from_file(str(STORIES / "tokenizer.json"))
    expected = [oracle.encode(text).ids for text in documents]
    assert [document.tolist() for document in found] == expected
    assert [header["shard"] for header in headers] == list(range(len(headers))) and len(headers) > 2
    assert all(header["shards"] == len(headers) and header["width"] == 2 and header["vocab"] == oracle.get_vocab_size() for header in headers)
    assert all(header["tokens"] >= 1000 for header in headers[:-1])
    summary = json.loads(run.stdout)
    assert summary["documents"] == 40 and summary["tokens"] == sum(map(len, expected)) and summary["shards"] == len(headers)


def train(data, out, *arguments):
    return ["train", "--model", STORIES, "--data", data, "--out", out, "--context", CONTEXT, "--threads", 1, *arguments]


def test_training_and_evaluation_are_those_of_the_texts(focus, texts, tmp_path):
    assert tokenize(focus, texts[0], tmp_path / "shards", "--shard-tokens", 1500).returncode == 0
    options = {"all": ["--train", "all", "--max-steps", 4, "--batch-size", 2],
               "centroids": ["--train", "centroids", "--max-steps", 2, "--window", 8, "--groups", 8, "--groups-per-token", 2,
                             "--list-windows", 2, "--rows", 8]}
    for name, flags in options.items():
        seen = []
        for data in (texts[0], tmp_path / "shards"):
            run = focus(*train(data, tmp_path / f"{name}-{data.name}", *flags))
            assert run.returncode == 0, run.stderr
            seen.append([line["loss"] for line in lines(tmp_path / f"{name}-{data.name}")])
        assert seen[0] == seen[1]
    measured = [json.loads(focus("eval", "--model", STORIES, "--data", data, "--context", CONTEXT, "--json").stdout)
                for data in (texts[0], tmp_path / "shards")]
    assert measured[0]["nll"] == measured[1]["nll"] and measured[0]["tokens_scored"] == measured[1]["tokens_scored"]


def test_a_resumed_run_goes_on_at_its_position(focus, texts, tmp_path):
    assert tokenize(focus, texts[0], tmp_path / "shards", "--shard-tokens", 1500).returncode == 0
    flags = ["--train", "all", "--max-steps", 6, "--save-every", 2]
    assert focus(*train(tmp_path / "shards", tmp_path / "run", *flags)).returncode == 0
    whole = [line["loss"] for line in lines(tmp_path / "run")]
    state = json.loads((tmp_path / "run/checkpoint-4/trainer_state.json").read_text())["data"]
    assert state["position"] == 4
    resumed = focus(*train(tmp_path / "shards", tmp_path / "run", *flags, "--resume"))
    assert resumed.returncode == 0 and "step 4 of 6" in resumed.stderr, resumed.stderr
    assert [line["loss"] for line in lines(tmp_path / "run")] == whole
    # Other tokens are another run.
    assert tokenize(focus, texts[0] / "c.jsonl", tmp_path / "shards").returncode == 0
    other = focus(*train(tmp_path / "shards", tmp_path / "run", *flags, "--resume"))
    assert other.returncode == 1 and "the training data's" in other.stderr.splitlines()[-1], other.stderr


def test_damaged_and_foreign_shards_are_one_line(focus, texts, tmp_path):
    shards = tmp_path / "shards"
    assert tokenize(focus, texts[0], shards).returncode == 0
    file = shards / "shard-00000.tokens"
    good = file.read_bytes()

    def error():
        run = focus(*train(shards, tmp_path / "run", "--train", "all", "--max-steps", 1))
        assert run.returncode in (1, 2) and run.stderr.splitlines()[-1].startswith("focus: error: "), run.stderr
        return run.stderr.splitlines()[-1]

    rng = np.random.default_rng(0)
    for cut in (0, 10, 64, len(good) // 2, len(good) - 1):
        file.write_bytes(good[:cut])
        assert "shard-00000.tokens" in error()
    for _ in range(5):
        file.write_bytes(rng.bytes(200))
        assert "shard-00000.tokens" in error()
    ids_begin = 64 + 8 * struct.unpack_from("<Q", good, 24)[0]
    file.write_bytes(good[:ids_begin] + b"\xff" * (len(good) - ids_begin))
    assert "outside the vocabulary" in error()
    file.write_bytes(good[:40] + b"\x01" * 8 + good[48:])
    assert "another tokenizer" in error()
    file.write_bytes(good)
    assert "--keep-line-wraps" in focus(*train(shards, tmp_path / "run", "--keep-line-wraps")).stderr.splitlines()[-1]


@pytest.mark.parametrize("arguments, message", [
    ([], "--tokenize needs --tokenizer"),
    (["--tokenizer", STORIES, "--dtype", "float32"], "--dtype has no meaning with --tokenize"),
    (["--tokenizer", STORIES, "--shard-tokens", 0], "--shard-tokens"),
])
def test_flags_that_do_not_fit_are_refused(focus, texts, tmp_path, arguments, message):
    run = focus("convert", "--tokenize", texts[0], tmp_path / "out", *arguments)
    assert run.returncode == 2 and message in run.stderr.splitlines()[-1], run.stderr
    other = focus("convert", "--shard-tokens", 5, texts[0], tmp_path / "out")
    assert other.returncode == 2 and "--shard-tokens has no meaning without --tokenize" in other.stderr.splitlines()[-1]


def test_other_files_beside_shards_stay(focus, texts, tmp_path):
    folder = tmp_path / "both"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXT * 20)
    (folder / "notes.md").write_text("mine")
    (folder / "shard-00007.tokens").write_text("of an earlier run")
    run = tokenize(focus, folder, folder)
    assert run.returncode == 0, run.stderr
    assert sorted(file.name for file in folder.iterdir()) == ["a.txt", "notes.md", "shard-00000.tokens"]
    assert (folder / "a.txt").read_text() == TEXT * 20


def test_what_is_in_the_way_stays_and_an_interrupt_writes_nothing(focus, texts, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/notes.md").write_text("mine")
    run = tokenize(focus, texts[0], tmp_path / "kept")
    assert run.returncode == 1 and "holds no shards" in run.stderr.splitlines()[-1]
    assert (tmp_path / "kept/notes.md").read_text() == "mine"
    many = tmp_path / "many"
    many.mkdir()
    for i in range(100):
        (many / f"{i}.txt").write_text(TEXT * 4000)
    process = subprocess.Popen([str(focus_binary()), "convert", "--tokenize", "--tokenizer", str(STORIES), str(many), str(tmp_path / "out"),
                                "--threads", "1"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob(".out*")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1 and "nothing is written" in stderr.splitlines()[-1], stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))
