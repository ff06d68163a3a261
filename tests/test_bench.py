"""`focus bench`: the JSON lines, the override of the instruction set, refused requests."""

import json
import os

import pytest
from conftest import ROOT, STORIES

OF_STORIES = ("--model", STORIES, "--data", ROOT / "data/tinystories/sample.txt.gz")


def lines(result):
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_attention_lines(focus):
    rows = lines(focus("bench", "attention", "--lengths", "96,130", "--heads", 4, "--kv-heads", 2, "--head-dim", 16, "--window", 8,
                       "--methods", "full,focus,sdpa", "--repeats", 1, "--backward", "--routing", "--json"))
    assert len(rows) == 2 * 3 * 3
    for row in rows:
        assert {"bench", "method", "pass", "length", "heads", "kv_heads", "head_dim", "dtype", "isa", "threads", "ms_median", "ms_min",
                "ms_max", "pairs_kept", "gflops", "ratio_to", "share_of_ideal", "max_error", "commit", "cpu"} <= row.keys()
        assert row["ms_min"] <= row["ms_median"] <= row["ms_max"]
        assert ("groups" in row) == (row["method"] == "focus")
    full = next(r for r in rows if r["method"] == "full" and r["pass"] == "forward" and r["length"] == 130)
    sparse = next(r for r in rows if r["method"] == "focus" and r["pass"] == "forward" and r["length"] == 130)
    assert full["pairs_kept"] == 1 and sparse["pairs_kept"] < 0.5
    assert sparse["ratio_to"]["full"] == pytest.approx(full["ms_median"] / sparse["ms_median"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decode_lines(focus, dtype):
    rows = lines(focus("bench", "decode", "--lengths", 3000, "--heads", 4, "--kv-heads", 2, "--groups", 16, "--groups-per-token", 2,
                       "--window", 32, "--dtype", dtype, "--repeats", 1, "--json"))
    assert [row["method"] for row in rows] == ["full", "focus", "sdpa"]
    assert rows[0]["pairs_kept"] == 1 and 0.05 < rows[1]["pairs_kept"] < 0.3
    assert all(row["caches"] > 1 and row["reuse_bytes"] > 0 and row["llc_bytes"] > 0 for row in rows)


@pytest.mark.parametrize("what, scaling", [("prefill", None), ("decode", None), ("decode", "yarn:3"), ("prefill", "linear:4")])
def test_whole_model_beside_transformers(focus, what, scaling):
    flags = ["--rope-scaling", scaling, "--lengths", 700] if scaling else ["--lengths", "60,300"]
    rows = lines(focus("bench", what, *OF_STORIES, *flags, "--methods", "full,window,transformers", "--window", 20, "--repeats", 2,
                       "--prefill-chunk", 64, *(["--new-tokens", 7] if what == "decode" else []), "--json"))
    assert [row["method"] for row in rows] == ["full", "window", "transformers"] * (1 if scaling else 2)
    for row in rows:
        assert {"bench", "method", "model", "length", "dtype", "cache_dtype", "prefill_chunk", "rope_scaling", "isa", "threads", "ms_median",
                "ms_min", "ms_max", "tokens_per_s", "ratio_to", "max_error", "commit", "cpu"} <= row.keys()
        assert row["bench"] == what and row["rope_scaling"] == scaling and row["dtype"] == "float32"
        assert 0 < row["ms_min"] <= row["ms_median"] <= row["ms_max"]
        assert row["tokens_per_s"] == pytest.approx((1e3 if what == "decode" else 1e3 * row["length"]) / row["ms_median"])
        assert row["max_error"] < 1e-4
        if row["method"] != "transformers":
            assert 0 < row["attention_share"] < 1 and row["cache_bytes"] > 0
            assert (row["pairs_kept"] == 1) == (row["method"] == "full")
    assert rows[0]["ratio_to"]["transformers"] == pytest.approx(rows[2]["ms_median"] / rows[0]["ms_median"])


def test_bench_without_transformers_names_the_python(focus):
    result = focus("bench", "prefill", *OF_STORIES, "--lengths", 60, env={**os.environ, "FOCUS_PYTHON": "/nonexistent/python"})
    assert result.returncode == 1 and result.stdout == ""
    assert "/nonexistent/python cannot be run or has ended; FOCUS_PYTHON names a Python that has transformers" in result.stderr


def test_instruction_set_override(focus):
    run = ("bench", "attention", "--lengths", 64, "--methods", "full", "--repeats", 1, "--json")
    row = lines(focus(*run, env={**os.environ, "FOCUS_CPU": "baseline"}))[0]
    assert row["isa"] == "baseline"
    refused = focus(*run, env={**os.environ, "FOCUS_CPU": "sse9"})
    assert refused.returncode == 2 and refused.stdout == ""
    assert "FOCUS_CPU=sse9: no such instruction set; expected baseline, avx2 or avx512" in refused.stderr


@pytest.mark.parametrize("arguments, words", [
    (("attention", "--heads", 3, "--kv-heads", 2), "--heads 3: expected a multiple of --kv-heads, 2"),
    (("attention", "--probes", "own", "--groups-per-token", 2), "--probes own"),
    (("attention", "--lengths", 200000, "--backward"), "beyond --dense-limit 65536"),
    (("attention", "--clock", "cpu", "--threads", 2), "--clock cpu: expected --threads 1"),
    (("decode", "--backward"), "--backward belongs to bench attention"),
    (("decode", "--methods", "window"), "no method window"),
    (("attention", "--methods", "full,sdpa", "--groups", 16), "--groups belongs to --methods focus"),
    (("attention", "--methods", "full,sdpa", "--window", 16), "--window belongs to --methods focus and window"),
    (("decode", "--methods", "full,sdpa", "--skew", 2), "--skew belongs to --methods focus"),
    (("attention", "--force"), "--force belongs to bench prefill|decode|train --model"),
    (("prefill", *OF_STORIES, "--force"), "--force belongs to --adapter"),
    (("prefill", *OF_STORIES, "--methods", "full", "--window", 16), "--window belongs to --methods focus, window"),
    (("decode", *OF_STORIES, "--methods", "full,window", "--groups-per-token", 2), "--groups-per-token belongs to"),
    (("decode", *OF_STORIES, "--methods", "transformers"), "--methods transformers needs full beside it"),
    (("prefill",), "bench prefill: give --model and --data"),
    (("attention", "--model", STORIES), "--model belongs to bench prefill|decode|train --model"),
    (("decode", "--rope-scaling", "yarn:2"), "--rope-scaling belongs to bench prefill|decode|train --model"),
    (("prefill", *OF_STORIES, "--heads", 4), "--heads belongs to the benchmarks of the op"),
    (("prefill", *OF_STORIES, "--new-tokens", 4), "--new-tokens belongs to bench decode"),
    (("prefill", *OF_STORIES, "--methods", "focus"), "--methods focus needs --adapter"),
    (("decode", *OF_STORIES, "--methods", "sdpa"), "no method sdpa; known: full, focus, window"),
    (("decode", *OF_STORIES, "--lengths", 500), "532 tokens with the new ones, but the model's context is 512"),
])
def test_refused(focus, arguments, words):
    result = focus("bench", *arguments)
    assert result.returncode == 2, result.stderr
    assert words in result.stderr and result.stdout == ""


def test_training_full_beside_focus(focus, tmp_path):
    trained = focus("train", *OF_STORIES, "--out", tmp_path / "run", "--context", 128, "--window", 8, "--groups", 16, "--groups-per-token", 2,
                    "--max-steps", 2, "--list-windows", 2, "--rows", 16, "--threads", 1)
    assert trained.returncode == 0, trained.stderr
    flags = ["bench", "train", *OF_STORIES, "--adapter", tmp_path / "run/adapter", "--repeats", 2, "--threads", 1]
    rows = lines(focus(*flags, "--lengths", "100,400", "--json"))
    assert [(row["length"], row["method"]) for row in rows] == [(100, "full"), (100, "focus"), (400, "full"), (400, "focus")]
    config = json.loads((STORIES / "config.json").read_text())
    d, inner, kv = config["hidden_size"], config["intermediate_size"], config["hidden_size"] * config["num_key_value_heads"] // config["num_attention_heads"]
    weights = config["vocab_size"] * d + config["num_hidden_layers"] * (2 * d * d + 2 * d * kv + 3 * d * inner)
    for row in rows:
        assert {"bench", "method", "model", "length", "dtype", "autocast", "activation_checkpointing", "rope_scaling", "isa", "threads", "clock",
                "ms_median", "ms_min", "ms_max", "tokens_per_s", "pairs_kept", "gflops", "peak_gflops", "mfu", "attention_share",
                "attention_forward_ms", "attention_backward_ms", "peak_extra_bytes", "max_error", "ratio_to", "commit", "cpu"} <= row.keys()
        t = row["length"]
        operations = 6 * weights * t + 12 * config["num_hidden_layers"] * d * row["pairs_kept"] * t * (t + 1) / 2
        assert row["gflops"] == pytest.approx(1e-6 * operations / row["ms_median"])
        assert row["mfu"] == pytest.approx(row["gflops"] / row["peak_gflops"]) and 0 < row["mfu"] < 1
        assert row["tokens_per_s"] == pytest.approx(1e3 * t / row["ms_median"])
        assert row["attention_forward_ms"] > 0 and row["attention_backward_ms"] > 0 and 0 < row["attention_share"] < 1
        assert (row["pairs_kept"] == 1) == (row["method"] == "full") and row["max_error"] < 1e-3
    unused = focus("bench", "prefill", *OF_STORIES, "--adapter", tmp_path / "run/adapter", "--methods", "full", "--lengths", 60)
    assert unused.returncode == 2 and "--methods full takes nothing from --adapter" in unused.stderr
    checkpointed = lines(focus(*flags, "--lengths", 400, "--activation-checkpointing", "--autocast", "bfloat16", "--json"))
    assert all(row["activation_checkpointing"] and row["autocast"] == "bfloat16" for row in checkpointed)
    # The text form.
    table = focus(*flags, "--lengths", 60)
    assert table.returncode == 0 and table.stdout.splitlines()[1].split()[:2] == ["length", "method"]


@pytest.mark.parametrize("arguments, message", [
    (["bench", "train", "--lengths", 60], "give --model and --data"),
    (["bench", "train", *OF_STORIES, "--lengths", 60, "--methods", "full,window"], "bench train: no method window"),
    (["bench", "train", *OF_STORIES, "--lengths", 60, "--methods", "focus"], "needs --adapter"),
    (["bench", "train", *OF_STORIES, "--lengths", 60, "--prefill-chunk", 5], "--prefill-chunk belongs to bench prefill|decode"),
    (["bench", "train", *OF_STORIES, "--lengths", 60, "--dtype", "bfloat16"], "weights are trained in float32"),
    (["bench", "prefill", *OF_STORIES, "--lengths", 60, "--autocast", "bfloat16"], "--autocast belongs to bench train"),
    (["bench", "train", *OF_STORIES, "--lengths", 100_000], "the model's context is"),
])
def test_training_requests_that_do_not_fit(focus, arguments, message):
    result = focus(*arguments)
    assert result.returncode == 2 and message in result.stderr.splitlines()[-1], result.stderr
