"""`focus eval` with full attention against transformers: same text, context and stride, 1e-3 relative."""

import gzip
import json

import pytest
from conftest import ROOT, SMOLLM2, STORIES
from perplexity_oracle import perplexity


def stories_text() -> str:
    return gzip.decompress((ROOT / "data/tinystories/sample.txt.gz").read_bytes()).decode()[:12_000]


def book_text() -> str:
    line = gzip.decompress((ROOT / "data/books/test/jennie-gerhardt.jsonl.gz").read_bytes())
    return json.loads(line)["text"][50_000:70_000]


def compare(focus, tmp_path, model, text, context, stride, max_windows, *extra):
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    result = focus("eval", "--model", model, "--data", file, "--keep-line-wraps", "--method", "full", "--context", context,
                   "--stride", stride, "--max-windows", max_windows, "--json", *extra)
    assert result.returncode == 0, result.stderr
    ours = json.loads(result.stdout)
    oracle = perplexity(model, text, context, stride, max_windows)
    assert ours["tokens_scored"] == oracle["tokens_scored"]
    assert (ours["context"], ours["stride"], ours["method"]) == (context, stride, "full")
    assert ours["perplexity"] == pytest.approx(oracle["perplexity"], rel=1e-3)
    assert ours["nll"] == pytest.approx(oracle["nll"], rel=1e-3)
    tokens, losses = ours["window_tokens"], ours["window_nll"]
    assert len(tokens) == len(losses) == ours["windows"] and sum(tokens) == ours["tokens_scored"]
    assert sum(n * loss for n, loss in zip(tokens, losses, strict=True)) / sum(tokens) == pytest.approx(ours["nll"], rel=1e-9)


@pytest.mark.parametrize("context, stride, max_windows", [(256, 256, 0), (512, 128, 8), (100, 37, 20)])
def test_stories(focus, tmp_path, context, stride, max_windows):
    compare(focus, tmp_path, STORIES, stories_text(), context, stride, max_windows)


@pytest.mark.smollm2
@pytest.mark.parametrize("context, stride, max_windows", [(1024, 512, 2)])
def test_smollm2(focus, tmp_path, context, stride, max_windows):
    compare(focus, tmp_path, SMOLLM2, book_text(), context, stride, max_windows, "--dtype", "float32")
