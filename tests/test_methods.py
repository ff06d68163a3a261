"""The comparison methods against a plain PyTorch version of each, on random tensors; and their flags."""

import json
import subprocess

import pytest
import torch
from conftest import ROOT, STORIES, focus_binary
from safetensors.torch import load_file, save_file

import method_oracles as oracles

TEXT = ROOT / "data/tinystories/sample.txt.gz"
DIM = 16
CASES = [
    ("longformer", {}),
    ("longformer", dict(dilation=3, global_every=40)),
    ("longformer", dict(dilation=4, dilated_heads=1)),
    ("bigbird", dict(block_size=8, random_blocks=2)),
    ("bigbird", dict(block_size=13, random_blocks=3)),
    ("oracle", dict(top_keys=10)),
    ("oracle", dict(top_mass=0.7)),
    ("moba", dict(block_size=8, top_blocks=3)),
    ("moba", dict(block_size=11, top_blocks=1)),
    ("nsa-blocks", dict(block_size=8, top_blocks=2)),
    ("nsa-blocks", dict(block_size=12, top_blocks=4)),
    ("sparq", dict(query_components=5, top_keys=10)),
    ("sparq", dict(query_components=3, top_keys=7, mean_reallocation=False)),
    ("magicpig", dict(hash_bits=4, hash_tables=12)),
    ("performer", dict(features=40)),
    ("routing-transformer", dict(clusters=4, cluster_keys=25)),
    ("routing-transformer-causal", dict(clusters=5, cluster_keys=11)),
    ("linformer", dict(pool=8)),
    ("linformer-causal", dict(pool=7)),
]
LEAKING = ("routing-transformer", "linformer")
WITHOUT_LAYER_WINDOW = ("performer", "linformer", "linformer-causal")
WITHOUT_NEAR_KEYS = ("performer", "linformer")
SETTINGS = [
    dict(tokens=1),
    dict(tokens=140),
    dict(tokens=140, window=0, sinks=0),
    dict(tokens=131, layer=3, seed=9, layer_window=60, softcap=2.0),
]


def tensors(tokens, heads=4, kv_heads=2, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(h, tokens, DIM, generator=generator) for h in (heads, kv_heads, kv_heads)]


@pytest.fixture(scope="module")
def tool():
    with subprocess.Popen(focus_binary().parent / "focus_attend", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


def ours(tool, folder, method, q, k, v, flags, **settings):
    """[B, Hq, T, D] of the built method, and what it reports."""
    extra = {"document_start": settings.pop("document_start")} if "document_start" in settings else {}
    save_file({"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous(), **extra}, folder / "in.safetensors")
    arguments = [folder / "in.safetensors", folder / "out.safetensors", "--method", method]
    for name, value in {**flags, **settings}.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(flag if value else "--no-" + flag[2:])
        else:
            arguments += [flag, ",".join(map(str, value)) if isinstance(value, list) else value]
    tool.stdin.write(json.dumps(list(map(str, arguments))) + "\n")
    tool.stdin.flush()
    report = json.loads(tool.stdout.readline())
    assert "error" not in report, report
    return load_file(folder / "out.safetensors")["out"], report


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(("method", "flags"), CASES, ids=str)
def test_each_method_equals_a_plain_version_of_its_formulas(method, flags, settings, tool, tmp_path):
    settings = {"window": 9, "sinks": 2, "scale": 0.4, **settings}
    tokens = settings.pop("tokens")
    if method in WITHOUT_LAYER_WINDOW:
        settings.pop("layer_window", None)
    if method == "performer":
        settings.pop("softcap", None)
    q, k, v = tensors(tokens)
    expected, kept = getattr(oracles, method.replace("-", "_"))(oracles.Problem(q, k, v, **settings), **flags)
    if method in WITHOUT_NEAR_KEYS:
        del settings["window"], settings["sinks"]
    got, report = ours(tool, tmp_path, method, q[None], k[None], v[None], flags, **settings)
    assert (got[0] - expected).abs().max() <= 2e-5
    assert report == {"kept": kept, "causal": 4 * tokens * (tokens + 1) // 2, "is_causal": method not in LEAKING}
    if tokens > 1 and method not in LEAKING:
        chunked, again = ours(tool, tmp_path, method, q[None], k[None], v[None], flags, chunks=[70, 1, 1, tokens - 72], **settings)
        assert (chunked - got).abs().max() <= 2e-5
        assert again == report


@pytest.mark.parametrize(("method", "flags"), CASES[1:], ids=str)
def test_rows_and_documents_are_attended_alone(method, flags, tool, tmp_path):
    pairs = [tensors(120, seed=seed) for seed in (2, 3)]
    q, k, v = (torch.stack(parts) for parts in zip(*pairs))
    starts = torch.zeros(2, 120, dtype=torch.int32)
    starts[1, 50:] = 50
    settings = {"scale": 0.4} if method in WITHOUT_NEAR_KEYS else {"window": 5, "sinks": 1, "scale": 0.4}
    got, report = ours(tool, tmp_path, method, q, k, v, flags, document_start=starts, **settings)
    total = 0
    for row, begin, end in ((0, 0, 120), (1, 0, 50), (1, 50, 120)):
        part = oracles.Problem(q[row, :, begin:end], k[row, :, begin:end], v[row, :, begin:end], **settings)
        expected, kept = getattr(oracles, method.replace("-", "_"))(part, **flags)
        assert (got[row, :, begin:end] - expected).abs().max() <= 2e-5
        total += kept
    assert report["kept"] == total


SHORT = ["--model", STORIES, "--data", TEXT, "--threads", 1, "--json", "--quiet", "--context", 256, "--max-windows", 2]


@pytest.mark.parametrize(("method", "flags"), [
    ("longformer", ["--window", 32, "--dilation", 2]),
    ("bigbird", ["--window", 32, "--block-size", 16, "--random-blocks", 2]),
    ("oracle", ["--window", 32, "--top-mass", 0.9]),
    ("moba", ["--window", 32, "--block-size", 16, "--top-blocks", 2]),
    ("nsa-blocks", ["--window", 32, "--block-size", 16, "--top-blocks", 2]),
    ("sparq", ["--window", 32, "--query-components", 4, "--top-keys", 16]),
    ("magicpig", ["--window", 32, "--hash-bits", 3, "--hash-tables", 10]),
    ("performer", ["--features", 16]),
    ("routing-transformer-causal", ["--window", 32, "--clusters", 4, "--cluster-keys", 16]),
    ("linformer-causal", ["--window", 32, "--pool", 8]),
])
def test_causal_methods_do_not_leak_and_generate(focus, method, flags):
    result = focus("eval", *SHORT, "--method", method, *flags)
    assert result.returncode == 0, result.stderr
    line = json.loads(result.stdout)
    assert line["method"] == method and not line["leaks"]
    assert 0.1 < line["pairs_kept"] < 0.9
    assert 1 < line["perplexity"] < 300
    common = ["--model", STORIES, "--threads", 1, "--json", "--quiet", "--prompt", "Once upon a time there was a little fish. " * 6]
    runs = [focus("generate", *common, "-n", 12, "--ignore-eos", "--method", method, *flags, *more)
            for more in ([], ["--prefill-chunk", 17], ["--no-cache"])]
    assert all(run.returncode == 0 for run in runs), runs[0].stderr
    ids = [json.loads(run.stdout)["ids"] for run in runs]
    assert len(ids[0]) == 12 and ids.count(ids[0]) == 3


@pytest.mark.parametrize(("method", "flags"), [("routing-transformer", ["--window", 32, "--cluster-keys", 20]), ("linformer", [])])
def test_methods_that_leak_are_reported_on_demand_only(focus, method, flags):
    refused = focus("eval", *SHORT, "--method", method, *flags)
    assert refused.returncode == 1 and not refused.stdout
    assert "no figure is reported without --allow-leak" in refused.stderr
    result = focus("eval", *SHORT, "--method", method, *flags, "--allow-leak")
    assert result.returncode == 0, result.stderr
    line = json.loads(result.stdout)
    assert line["leaks"] and line["leak_max_abs_diff"] > 0.1
    prompt = ["--model", STORIES, "--threads", 1, "--quiet", "--prompt", "Once upon a time", "-n", 4]
    generated = focus("generate", *prompt, "--method", method, *flags)
    assert generated.returncode == 2
    assert f"method {method} reads later tokens" in generated.stderr


def test_a_window_over_the_whole_probe_hides_no_method_that_reads_later_tokens(focus):
    command = ["eval", *SHORT, "--method", "routing-transformer", "--window", 512]
    refused = focus(*command)
    assert refused.returncode == 1 and "reads later tokens" in refused.stderr
    (line,) = (json.loads(text) for text in focus(*command, "--allow-leak").stdout.splitlines())
    assert line["leaks"] is True and line["leak_max_abs_diff"] <= line["leak_tolerance"]


@pytest.mark.parametrize(("flags", "words"), [
    (["--method", "moba", "--dilation", 2], ["--dilation", "longformer", "not to moba"]),
    (["--block-size", 32], ["--block-size", "bigbird or moba or nsa-blocks"]),
    (["--method", "window", "--top-keys", 3], ["--top-keys", "oracle", "not to window"]),
    (["--method", "oracle", "--groups", 8], ["--groups", "oracle has no groups"]),
    (["--method", "nsa-blocks", "--block-size", 6], ["--block-size 6", "multiple of 4"]),
    (["--method", "oracle", "--top-mass", 1.5], ["--top-mass", "1.5"]),
    (["--method", "oracle", "--top-mass", 0.5, "--top-keys", 7], ["--top-keys and --top-mass exclude each other"]),
    (["--method", "performer", "--window", 64], ["--window", "performer attends no window"]),
])
def test_flags_of_another_method_are_refused(focus, flags, words):
    result = focus("eval", *SHORT, *flags)
    assert result.returncode == 2
    assert all(word in result.stderr for word in words), result.stderr
