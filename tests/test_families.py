"""Focus in every family: against a plain PyTorch model of its formulas, and through the whole command line."""

import json
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import load_file

import focus_oracle as oracle
import make_tiny_models as tiny
from conftest import ROOT, STORIES, focus_binary
from test_models import EVERY_FAMILY, TOLERANCE, difference, ours, random_ids

TEXT = ROOT / "data/tinystories/sample.txt.gz"


def module_of(model):
    return "transformer.h.{}.attn" if model.config.model_type == "gpt2" else "model.layers.{}.self_attn"


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", [*EVERY_FAMILY, "qwen3_options", "olmo2", "gemma2_capped"])
def test_hard_routing_equals_a_plain_model_of_the_formulas(name, shared, tmp_path):
    model = tiny.save(name, tmp_path / "model")
    heads = getattr(model.config, "num_key_value_heads", None) or model.config.num_attention_heads
    # The last layer stays dense.
    layers = list(range(model.config.num_hidden_layers - 1))
    config, tensors = oracle.save_adapter(tmp_path / "adapter", model, layers, module=module_of(model), sets=1 if shared else heads)
    ids = random_ids(1, 60)
    full = tiny.logits(model, ids)
    oracle.insert(model, config, tensors)
    expected = tiny.logits(model, ids)
    assert difference(expected, full) > 1e-2
    got, report = ours(tmp_path / "model", tmp_path, ids, adapter=str(tmp_path / "adapter"))
    assert difference(got, expected) <= TOLERANCE
    for chunks in ([1, 17, 42], [1] * 60):
        chunked, again = ours(tmp_path / "model", tmp_path, ids, adapter=str(tmp_path / "adapter"), chunks=chunks)
        assert difference(chunked, got) <= 2e-5
        assert again["pairs_kept"] == report["pairs_kept"]


@pytest.mark.parametrize("name", [*EVERY_FAMILY, "gemma2_capped"])
def test_gradients_under_the_soft_gate_equal_autograd(name, tmp_path):
    model = tiny.save(name, tmp_path / "model")
    heads = getattr(model.config, "num_key_value_heads", None) or model.config.num_attention_heads
    layers = list(range(model.config.num_hidden_layers - 1))
    config, tensors = oracle.save_adapter(tmp_path / "adapter", model, layers, module=module_of(model), sets=heads, symmetric=True,
                                          groups_per_token=1, tau=0.5)
    parameters = {f"layers.{layer}.{key}": named[key].requires_grad_() for layer, named in tensors.items()
                  for key in ("projection", "centroids")}
    oracle.insert(model, {**config, "sharpness": 3.0}, tensors)
    (row,) = random_ids(1, 60)
    ids = torch.tensor([row])
    loss = torch.nn.functional.cross_entropy(model(ids, use_cache=False).logits[0, :-1], ids[0, 1:])
    expected = torch.autograd.grad(loss, list(parameters.values()))

    tool = focus_binary().parent / "focus_gate_gradients"
    run = subprocess.run([tool, tmp_path / "model", tmp_path / "adapter", tmp_path / "out.safetensors"], text=True, capture_output=True,
                         input=json.dumps({"ids": row, "sharpness": 3.0}), timeout=300)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    got = load_file(tmp_path / "out.safetensors")
    assert set(got) == set(parameters)
    for key, gradient in zip(parameters, expected):
        assert gradient.abs().max() > 0
        assert (got[key] - gradient).abs().max() <= TOLERANCE * gradient.abs().max(), key


def test_head_scales_beside_lists_and_dense_layers(tmp_path):
    model = tiny.save("llama_gqa", tmp_path / "model")
    last = model.config.num_hidden_layers - 1
    config, tensors = oracle.save_adapter(tmp_path / "adapter", model, [0, 1], module=module_of(model),
                                          sets=model.config.num_key_value_heads, scaled=[1, last])
    ids = random_ids(1, 60)
    plain = {layer: {name: tensor for name, tensor in named.items() if name not in ("score_factor", "output_gain")}
             for layer, named in tensors.items() if layer != last}
    oracle.insert(model, config, plain)
    unscaled = tiny.logits(model, ids)
    oracle.insert(model, config, tensors)
    expected = tiny.logits(model, ids)
    assert difference(expected, unscaled) > 1e-2
    got, report = ours(tmp_path / "model", tmp_path, ids, adapter=str(tmp_path / "adapter"))
    assert difference(got, expected) <= TOLERANCE
    for chunks in ([1, 17, 42], [1] * 60):
        chunked, again = ours(tmp_path / "model", tmp_path, ids, adapter=str(tmp_path / "adapter"), chunks=chunks)
        assert difference(chunked, got) <= 2e-5
        assert again["pairs_kept"] == report["pairs_kept"]


@pytest.mark.parametrize(("name", "settings"), [
    ("llama_gqa", {}), ("llama_gqa", {"sets": 1, "groups_per_token": 1, "sinks": 0}), ("gpt2", {"window": 0, "groups_per_token": 3}),
    ("gemma2_capped", {"groups": 9, "window": 3}), ("mistral", {"groups": 3, "groups_per_token": 2})])
def test_gradients_through_the_hard_mask_equal_autograd_in_double(name, settings, tmp_path):
    model = tiny.save(name, tmp_path / "model").double()
    heads = getattr(model.config, "num_key_value_heads", None) or model.config.num_attention_heads
    layers = list(range(model.config.num_hidden_layers))
    config, tensors = oracle.save_adapter(tmp_path / "adapter", model, layers[:-1], module=module_of(model), tau=0.5, scaled=layers,
                                          **{"sets": heads, **settings})
    tensors = {layer: {key: tensor.double() for key, tensor in named.items()} for layer, named in tensors.items()}
    parameters = {f"layers.{layer}.{key}": named[key].requires_grad_() for layer, named in tensors.items()
                  for key in ("codebook", "score_factor", "output_gain") if key in named}
    oracle.insert(model, {**config, "sharpness": 3.0}, tensors)
    (row,) = random_ids(1, 60)
    ids = torch.tensor([row])
    loss = torch.nn.functional.cross_entropy(model(ids, use_cache=False).logits[0, :-1], ids[0, 1:])
    expected = torch.autograd.grad(loss, list(parameters.values()))

    tool = focus_binary().parent / "focus_ste_gradients"
    run = subprocess.run([tool, tmp_path / "model", tmp_path / "adapter", tmp_path / "out.safetensors"], text=True, capture_output=True,
                         input=json.dumps({"ids": row, "sharpness": 3.0}), timeout=300)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    got = load_file(tmp_path / "out.safetensors")
    assert set(got) == set(parameters)
    for key, gradient in zip(parameters, expected):
        assert gradient.abs().max() > 0
        assert (got[key] - gradient).abs().max() <= TOLERANCE * gradient.abs().max(), key


def done(result):
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(("name", "layers"), [("gpt2", [0, 1, 2]), ("llama_gqa", [1, 2]), ("mistral", [0, 1, 2, 3]),
                                              ("qwen2_sliding", [0, 3]), ("qwen3", [0, 1, 2, 3]), ("olmo2_gqa", [0, 1, 2, 3]),
                                              ("gemma2", [0, 1, 2, 3])])
def test_training_evaluation_and_generation(focus, name, layers, tmp_path):
    model = tmp_path / "model"
    tiny.save(name, model, vocab_size=512, **({"n_positions": 1024} if name == "gpt2" else {"max_position_embeddings": 1024}))
    shutil.copy(STORIES / "tokenizer.json", model)
    common = ["--model", model, "--threads", 1, "--json", "--quiet"]
    text = ["--data", TEXT, "--context", 128]
    chosen = {"llama_gqa": ["--layers", "1-2"], "qwen2_sliding": ["--layers", "3,0"]}.get(name, [])
    (*steps, summary) = done(focus("train", *common, *text, "--window", 4, "--sinks", 2, "--groups", 8, "--groups-per-token", 2,
                                   "--rows", 32, "--max-steps", 4, "--list-windows", 2, "--out", tmp_path / "out", *chosen))
    assert [line["step"] for line in steps] == [1, 2, 3, 4]
    assert all(len(line["layer_loss"]) == len(layers) and min(line["layer_loss"]) > 0 for line in steps)
    assert summary["leak_max_abs_diff"] == 0
    adapter = tmp_path / "out/adapter"
    assert json.loads((adapter / "adapter_config.json").read_text())["layers_to_transform"] == layers

    (result,) = done(focus("eval", *common, *text, "--max-windows", 2, "--adapter", adapter))
    assert result["leak_max_abs_diff"] == 0
    assert 0 < result["pairs_kept"] < 0.95
    assert len(result["dominance"]) == len(layers)

    prompt = "Once upon a time there was a little fish who lived in a big blue lake with many other fish. " * 2
    for method in (["--adapter", adapter], []):
        runs = [done(focus("generate", *common, "--prompt", prompt, "-n", 30, "--ignore-eos", *method, *flags))[0]
                for flags in ([], ["--prefill-chunk", 1], ["--prefill-chunk", 17], ["--no-cache"])]
        assert len(runs[0]["ids"]) == 30
        assert all(run["ids"] == runs[0]["ids"] for run in runs)


def test_layers_that_cannot_be_chosen(focus, tmp_path):
    model = tmp_path / "model"
    tiny.save("gemma2", model, vocab_size=512)
    shutil.copy(STORIES / "tokenizer.json", model)
    train = ["train", "--model", model, "--data", TEXT, "--context", 128, "--max-steps", 1, "--list-windows", 1, "--groups", 4,
             "--groups-per-token", 2]
    for flags, words in ([["--layers", "2-4"], ["4 is out of bounds", "last is 3"]], [["--layers", "3-1"], ["backwards"]],
                         [["--layers", "1,x"], ["'x'"]], [["--layers", "0-1"], ["layer 0 sees 9 tokens", "--window 64"]]):
        result = focus(*train, "--window", 64, "--out", tmp_path / "refused", *flags)
        assert result.returncode == 2
        assert all(word in result.stderr for word in words), result.stderr
    result = focus(*train, "--window", 64, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "layers 0, 2 stay as they are" in result.stderr
    assert json.loads((tmp_path / "out/adapter/adapter_config.json").read_text())["layers_to_transform"] == [1, 3]
