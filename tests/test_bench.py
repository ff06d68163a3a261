"""`focus bench`: the JSON lines, the override of the instruction set, refused requests."""

import json
import os

import pytest


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
    (("prefill",), "attention"),
])
def test_refused(focus, arguments, words):
    result = focus("bench", *arguments)
    assert result.returncode == 2, result.stderr
    assert words in result.stderr and result.stdout == ""
