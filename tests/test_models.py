"""Our models against transformers (tiny random checkpoints) and against the reference values of the real ones.

Tolerance: the largest difference of two logits, over max(1, largest logit of the reference), is at most 1e-4 in float32."""

import json
import os
import pathlib
import random
import shutil
import subprocess

import numpy
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import make_tiny_models as tiny
from conftest import ROOT, SMOLLM2, STORIES

TOOL = ROOT / os.environ.get("FOCUS_BUILD", "build/release") / "bin/focus_logits"
TOLERANCE = 1e-4


def start(folder, out, request):
    return subprocess.run([TOOL, folder, out], input=json.dumps(request), capture_output=True, text=True, timeout=600)


def ours(folder, tmp_path, ids, **request):
    """(logits float32 [B, T, V], the tool's report)."""
    out = tmp_path / "logits.safetensors"
    result = start(folder, out, {"ids": ids, **request})
    assert result.returncode == 0, result.stderr
    return load_file(out)["logits"], json.loads(result.stdout)


def refused(folder, tmp_path, ids=((1, 2, 3),), **request):
    """The one-line message of a run that must fail."""
    result = start(folder, tmp_path / "logits.safetensors", {"ids": ids, **request})
    assert result.returncode == 1, (result.returncode, result.stdout, result.stderr)
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def difference(a, b):
    """Largest difference relative to the reference's scale; infinite where only one side is finite."""
    assert a.shape == b.shape
    assert torch.isfinite(a).all() and torch.isfinite(b).all()
    return float((a - b).abs().max() / max(1.0, float(b.abs().max())))


def random_ids(batch, length, vocab=131, seed=0):
    generator = random.Random(seed)
    return [[generator.randrange(vocab) for _ in range(length)] for _ in range(batch)]


@pytest.mark.parametrize("name", tiny.MODELS)
def test_logits_and_greedy_ids_equal_transformers(name, tmp_path):
    model = tiny.save(name, tmp_path / "model", shard_size="20KB" if len(name) % 2 else "5GB")
    ids = random_ids(2, 33)
    got, _ = ours(tmp_path / "model", tmp_path, ids)
    assert difference(got, tiny.logits(model, ids)) <= TOLERANCE
    _, report = ours(tmp_path / "model", tmp_path, ids[:1], greedy=30)
    assert report["greedy_ids"] == tiny.greedy(model, ids[0], 30)


@pytest.mark.parametrize("name", [n for n in tiny.MODELS if n.startswith("rope_")])
@pytest.mark.parametrize("old_config", [False, True])
def test_rotary_positions_beyond_20000(name, old_config, tmp_path):
    model = tiny.save(name, tmp_path / "model", old_config=old_config)
    ids = random_ids(1, 33)
    got, _ = ours(tmp_path / "model", tmp_path, ids, offset=20_011)
    assert difference(got, tiny.logits(model, ids, offset=20_011)) <= TOLERANCE


EVERY_FAMILY = ["gpt2", "llama_gqa", "llama_biases", "mistral", "qwen2_sliding", "qwen3", "olmo2_gqa", "gemma2"]


@pytest.mark.parametrize("name", ["gpt2", "llama_gqa", "rope_yarn"])
def test_one_pass_equals_chunks_equals_token_by_token(name, tmp_path):
    tiny.save(name, tmp_path / "model")
    ids = random_ids(2, 60)
    whole, report = ours(tmp_path / "model", tmp_path, ids)
    assert report["pairs_kept"] == 2 * 3 * 60 * 61 // 2
    for chunks in ([1] * 60, [17, 17, 17, 9], [1, 58, 1], [60]):
        got, report = ours(tmp_path / "model", tmp_path, ids, chunks=chunks)
        assert difference(got, whole) <= 1e-5
        assert report["pairs_kept"] == 2 * 3 * 60 * 61 // 2


@pytest.mark.parametrize("name", ["mistral", "qwen2_sliding", "qwen3", "olmo2_gqa", "gemma2"])
def test_chunks_beyond_a_sliding_window(name, tmp_path):
    model = tiny.save(name, tmp_path / "model")
    ids = random_ids(1, 530)
    whole, report = ours(tmp_path / "model", tmp_path, ids)
    assert difference(whole, tiny.logits(model, ids)) <= TOLERANCE
    pairs = report["pairs_kept"]
    windows = [9 if slides else 530 for slides in {"mistral": [1] * 4, "qwen2_sliding": [0, 0, 1, 1],
                                                   "gemma2": [1, 0, 1, 0]}.get(name, [0] * 4)]
    assert pairs == sum(min(i + 1, window) for window in windows for i in range(530))
    for chunks in ([1, 17, 512], [512, 17, 1], [1] * 20 + [510]):
        got, report = ours(tmp_path / "model", tmp_path, ids, chunks=chunks)
        assert difference(got, whole) <= 2e-5
        assert report["pairs_kept"] == pairs


@pytest.mark.parametrize("name", ["gemma2", "qwen2_sliding", "qwen3_options"])
def test_configurations_without_layer_types(name, tmp_path):
    """As files from before transformers 4.53 are."""
    model = tiny.save(name, tmp_path / "model")
    edit_config(tmp_path / "model", layer_types="absent")
    ids = random_ids(1, 40)
    got, _ = ours(tmp_path / "model", tmp_path, ids)
    assert difference(got, tiny.logits(model, ids)) <= TOLERANCE


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_packed_documents_equal_single_runs(name, tmp_path):
    tiny.save(name, tmp_path / "model")
    row = random_ids(1, 40)[0]
    starts = [0] * 13 + [13] * 1 + [14] * 26
    packed, _ = ours(tmp_path / "model", tmp_path, [row], document_start=[starts])
    chunked, _ = ours(tmp_path / "model", tmp_path, [row], document_start=[starts], chunks=[5, 20, 15])
    for begin, end in ((0, 13), (13, 14), (14, 40)):
        alone, _ = ours(tmp_path / "model", tmp_path, [row[begin:end]])
        assert difference(packed[:, begin:end], alone) <= 1e-5
        assert difference(chunked[:, begin:end], alone) <= 1e-5


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_left_padding_leaves_no_trace(name, tmp_path):
    tiny.save(name, tmp_path / "model")
    rows = random_ids(3, 30)
    lengths = (30, 11, 1)
    starts = [[30 - n if t >= 30 - n else 31 for t in range(30)] for n in lengths]
    batch, _ = ours(tmp_path / "model", tmp_path, rows, document_start=starts)
    for row, (ids, length) in enumerate(zip(rows, lengths)):
        alone, _ = ours(tmp_path / "model", tmp_path, [ids[30 - length:]])
        assert difference(batch[row:row + 1, 30 - length:], alone) <= 1e-5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_half_precision_is_as_near_to_float32_as_transformers_is(name, dtype, tmp_path):
    tiny.save(name, tmp_path / "model", dtype=getattr(torch, dtype))
    ids = random_ids(2, 41)
    exact = tiny.logits(tiny.load(tmp_path / "model", torch.float32), ids)
    got, report = ours(tmp_path / "model", tmp_path, ids)
    assert report["dtype"] == dtype
    theirs = tiny.logits(tiny.load(tmp_path / "model", getattr(torch, dtype)), ids)
    assert (got - exact).abs().mean() <= 1.5 * (theirs - exact).abs().mean()
    wide, report = ours(tmp_path / "model", tmp_path, ids, dtype="float32")
    assert report["dtype"] == "float32"
    assert difference(wide, exact) <= TOLERANCE


def test_memory_is_that_of_one_copy(tmp_path):
    """Peak memory beyond that of a tiny model: of a bfloat16 model as stored 1.1 times its files, as float32 1.1 times the copy."""
    folder = tmp_path / "model"
    config = transformers.LlamaConfig(vocab_size=16000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8,
                                      num_attention_heads=8, num_key_value_heads=8)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.to(torch.bfloat16).to_empty(device="cpu")
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(0.01)
    model.save_pretrained(folder, max_shard_size="100MB")
    files = list(folder.glob("*.safetensors"))
    assert len(files) > 2
    size = sum(file.stat().st_size for file in files) / 2**20
    base = ours(STORIES, tmp_path, [[1, 2, 3]])[1]
    stored = ours(folder, tmp_path, [[1, 2, 3]])[1]
    assert stored["peak_mb_of_loading"] - base["peak_mb_of_loading"] <= 0.1 * size
    assert stored["peak_mb"] - base["peak_mb"] <= 1.1 * size
    wide = ours(folder, tmp_path, [[1, 2, 3]], dtype="float32")[1]
    assert wide["peak_mb_of_loading"] - base["peak_mb_of_loading"] <= 1.1 * 2 * size
    print(f"{size:.0f} MB: loading {stored['peak_mb_of_loading'] - base['peak_mb_of_loading']:.0f} MB, with a pass "
          f"{stored['peak_mb'] - base['peak_mb']:.0f} MB, as float32 {wide['peak_mb_of_loading'] - base['peak_mb_of_loading']:.0f} MB")


def test_fingerprint_knows_the_model_not_its_storage(tmp_path):
    model = tiny.save("llama_gqa", tmp_path / "one", dtype=torch.bfloat16)
    tiny.save("llama_gqa", tmp_path / "shards", dtype=torch.bfloat16, shard_size="20KB")
    tiny.save("llama_tied", tmp_path / "other", dtype=torch.bfloat16)
    ids = random_ids(1, 5)
    fingerprint = ours(tmp_path / "one", tmp_path, ids)[1]["fingerprint"]
    assert ours(tmp_path / "shards", tmp_path, ids)[1]["fingerprint"] == fingerprint
    assert ours(tmp_path / "one", tmp_path, ids, dtype="float32")[1]["fingerprint"] == fingerprint
    assert ours(tmp_path / "other", tmp_path, ids)[1]["fingerprint"] != fingerprint
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.mul_(1.5)
    model.save_pretrained(tmp_path / "changed")
    assert ours(tmp_path / "changed", tmp_path, ids)[1]["fingerprint"] != fingerprint


@pytest.fixture
def sharded(tmp_path):
    folder = tmp_path / "sharded"
    model = tiny.save("llama_gqa", folder, shard_size="20KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 3
    return folder, model, index


def write_index(folder, index):
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_equal_transformers_and_stray_files_are_not_read(sharded, tmp_path):
    folder, model, _ = sharded
    save_file({"model.norm.weight": torch.full((48,), 7.0), "stray": torch.ones(3)}, folder / "zz_stray.safetensors")
    ids = random_ids(1, 20)
    got, _ = ours(folder, tmp_path, ids)
    assert difference(got, tiny.logits(model, ids)) <= TOLERANCE


def test_shard_faults_are_named(sharded, tmp_path):
    folder, _, index = sharded
    shard = index["weight_map"]["model.norm.weight"]
    shutil.move(folder / shard, tmp_path / shard)
    assert shard in refused(folder, tmp_path)
    shutil.move(tmp_path / shard, folder / shard)

    for name in ("../outside.safetensors", "/etc/passwd", "..", "a\\b", ""):
        write_index(folder, {"weight_map": {**index["weight_map"], "model.norm.weight": name}})
        assert "not a plain file name" in refused(folder, tmp_path)

    write_index(folder, {"weight_map": {**index["weight_map"], "phantom.weight": shard}})
    message = refused(folder, tmp_path)
    assert "phantom.weight" in message and shard in message

    write_index(folder, {"weight_map": []})
    assert "weight_map" in refused(folder, tmp_path)
    (folder / "model.safetensors.index.json").write_text("{")
    assert "not valid JSON" in refused(folder, tmp_path)


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps({k: v for k, v in config.items() if v != "absent"}))


def test_weights_missing_unused_or_misshaped_are_named(tmp_path):
    folder = tmp_path / "model"
    tiny.save("llama_gqa", folder)
    weights = load_file(folder / "model.safetensors")

    save_file({k: v for k, v in weights.items() if "layers.1.mlp" not in k and k != "model.norm.weight"},
              folder / "model.safetensors")
    message = refused(folder, tmp_path)
    for name in ("4 missing", "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.down_proj.weight", "model.norm.weight"):
        assert name in message

    save_file({}, folder / "model.safetensors")
    message = refused(folder, tmp_path)
    assert "30 missing" in message and "and 20 more" in message

    save_file({**weights, "model.layers.0.self_attn.q_norm.weight": torch.ones(8)}, folder / "model.safetensors")
    message = refused(folder, tmp_path)
    assert "1 unused" in message and "model.layers.0.self_attn.q_norm.weight" in message

    save_file({**weights, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}, folder / "model.safetensors")
    ours(folder, tmp_path, [[1, 2, 3]])

    save_file({**weights, "model.norm.weight": torch.ones(47)}, folder / "model.safetensors")
    message = refused(folder, tmp_path)
    assert "model.norm.weight has shape [47], expected [48]" in message

    save_file({**weights, "model.norm.weight": torch.ones(48, dtype=torch.int8)}, folder / "model.safetensors")
    assert "model.norm.weight has dtype int8" in refused(folder, tmp_path)

    save_file({**weights, "model.norm.weight": torch.ones(48, dtype=torch.bfloat16)}, folder / "model.safetensors")
    message = refused(folder, tmp_path)
    assert "'model.norm.weight' is bfloat16" in message and "--dtype" in message
    ours(folder, tmp_path, [[1, 2, 3]], dtype="float32")


@pytest.mark.parametrize("changes, words", [
    (dict(model_type="mamba"), ["unknown architecture", "'mamba'", "gpt2, llama, mistral"]),
    (dict(model_type="absent"), ["model_type"]),
    (dict(hidden_act="swishy"), ["unknown activation 'swishy'", "silu"]),
    (dict(rope_parameters=dict(rope_type="longrope", factor=2.0)), ["unknown rope type 'longrope'", "llama3"]),
    (dict(rope_parameters=dict(rope_type="linear")), ["'factor' is missing"]),
    (dict(rope_parameters=dict(rope_type="default", partial_rotary_factor=0.5)), ["partial_rotary_factor is 0.5"]),
    (dict(rope_parameters=dict(full_attention=dict(rope_type="default"))), ["per layer type"]),
    (dict(vocab_size=140), ["model.embed_tokens.weight has shape [131, 48], expected [140, 48]"]),
    (dict(hidden_size=50, head_dim="absent"), ["hidden_size 50", "num_attention_heads 6"]),
    (dict(num_key_value_heads=4), ["num_attention_heads 6", "num_key_value_heads 4"]),
    (dict(head_dim=7), ["even head_dim, not 7"]),
    (dict(num_hidden_layers=-1), ["num_hidden_layers is -1"]),
    (dict(num_hidden_layers=2 ** 30), ["num_hidden_layers is 1073741824"]),
    (dict(num_hidden_layers=2), ["9 unused", "model.layers.2."]),
    (dict(hidden_size="48"), ['hidden_size is "48"']),
    (dict(attention_bias=True), ["12 missing", "model.layers.0.self_attn.q_proj.bias"]),
    (dict(quantization_config={"bits": 4}), ["quantization_config"]),
    (dict(num_local_experts=8), ["'num_local_experts' is not supported for llama"]),
    (dict(model_type="mistral", layer_types=["full_attention"] * 3), ["mistral with layer_types"]),
    (dict(model_type="mistral", sliding_window=0), ["sliding_window is 0"]),
    (dict(model_type="qwen2", layer_types=["full_attention"] * 2), ["layer_types has 2 entries for 3 layers"]),
    (dict(model_type="qwen2", layer_types=["chunked_attention"] * 3), ["unknown layer type 'chunked_attention'"]),
    (dict(model_type="qwen2", layer_types=["sliding_attention"] * 3), ["no sliding_window"]),
    (dict(model_type="qwen2"), ["9 missing", "model.layers.0.self_attn.q_proj.bias"]),
    (dict(model_type="qwen3", head_dim=8), ["6 missing", "model.layers.0.self_attn.q_norm.weight"]),
    (dict(model_type="olmo2"), ["9 missing", "3 unused", "post_feedforward_layernorm", "input_layernorm"]),
    (dict(model_type="gemma2", head_dim=8, query_pre_attn_scalar=0), ["query_pre_attn_scalar is 0"]),
    (dict(model_type="gemma2", head_dim=8, use_bidirectional_attention=True), ["'use_bidirectional_attention'"]),
    (dict(model_type="gemma2", head_dim=8, attn_logit_softcapping=-1), ["attn_logit_softcapping is -1"]),
])
def test_configurations_that_cannot_be_run_are_named(changes, words, tmp_path):
    folder = tmp_path / "model"
    tiny.save("llama_gqa", folder)
    edit_config(folder, **changes)
    message = refused(folder, tmp_path)
    for word in words:
        assert word in message


def test_folders_and_ids_at_fault_are_named(tmp_path):
    folder = tmp_path / "model"
    assert "no such model folder" in refused(folder, tmp_path)
    tiny.save("gpt2", folder)
    assert "token id 131 is outside the model's vocabulary of 131" in refused(folder, tmp_path, ids=[[1, 131]])
    assert "token id -1" in refused(folder, tmp_path, ids=[[1, -1]])
    assert "65 tokens exceed the model's 64 learned positions" in refused(folder, tmp_path, ids=random_ids(1, 65))
    assert "exceed its capacity of 8" in refused(folder, tmp_path, ids=random_ids(1, 9), chunks=[4, 5], capacity=8)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pytorch_model.bin is not read" in refused(folder, tmp_path)
    (folder / "config.json").unlink()
    assert "no config.json" in refused(folder, tmp_path)


def test_truncated_weights_give_one_line_with_byte_counts(tmp_path):
    folder = tmp_path / "model"
    tiny.save("llama_gqa", folder)
    data = (folder / "model.safetensors").read_bytes()
    header = int.from_bytes(data[:8], "little")
    for size in (0, 1, 7, 8, 9, 8 + header // 2, 8 + header - 1, 8 + header, 8 + header + 5, len(data) // 2, len(data) - 1):
        (folder / "model.safetensors").write_bytes(data[:size])
        message = refused(folder, tmp_path)
        assert "model.safetensors" in message and any(character.isdigit() for character in message)
    (folder / "model.safetensors").write_bytes((2 ** 63).to_bytes(8, "little") + data[8:])
    assert str(2 ** 63) in refused(folder, tmp_path)


def test_tied_head_stored_beside_the_embedding(tmp_path):
    """Kept when it differs, as in transformers; else shared."""
    folder = tmp_path / "model"
    model = tiny.save("llama_gqa", folder)
    edit_config(folder, tie_word_embeddings=True)
    ids = random_ids(1, 20)
    got, _ = ours(folder, tmp_path, ids)
    assert difference(got, tiny.logits(model, ids)) <= TOLERANCE


def test_end_ids_are_the_union_of_both_configurations(tmp_path):
    folder = tmp_path / "model"
    tiny.save("llama_gqa", folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 9]}')
    assert ours(folder, tmp_path, [[1, 2]])[1]["eos_ids"] == [2, 5, 9]


def nll(logits, ids):
    return float(torch.nn.functional.cross_entropy(logits[0, :-1], torch.tensor(ids[1:])))


def check_top5(logits, checks):
    for check in checks:
        row = logits[0, check["position"]]
        top = torch.topk(row, 5)
        assert top.indices.tolist() == check["top5_ids"]
        assert numpy.allclose(top.values.numpy(), check["top5_logits"], rtol=1e-4, atol=1e-4)


def test_stories260k_reproduces_its_reference(tmp_path):
    reference = json.loads((STORIES / "reference.json").read_text())
    published = reference["greedy_ids_from_bos"]
    logits, report = ours(STORIES, tmp_path, [published], greedy=1)
    check_top5(logits, reference["logits_check"])
    assert logits[0, :-1].argmax(-1).tolist() == published[1:]
    _, report = ours(STORIES, tmp_path, [published[:1]], greedy=len(published) - 1)
    assert report["greedy_ids"] == published[1:]
    check = reference["nll_check"]
    logits, _ = ours(STORIES, tmp_path, [check["ids"]])
    assert abs(nll(logits, check["ids"]) - check["mean_nll_nats"]) <= 1e-5


@pytest.fixture(scope="module")
def smollm2():
    folder = pathlib.Path(os.environ.get("FOCUS_SMOLLM2", SMOLLM2))
    if not (folder / "model.safetensors").exists():
        pytest.skip(f"no SmolLM2-135M-Instruct in {folder} (scripts/fetch_smollm2.sh makes it, FOCUS_SMOLLM2 names another place)")
    return folder


def check_top5_of_rounded(logits, checks):
    """The reference was computed from unrounded weights, the folder holds bfloat16 ones with a relative error of 2^-9 each: the
    first token must agree, the logits of all five to 2^-7. (Against transformers on the same folder the bound is TOLERANCE.)"""
    for check in checks:
        row = logits[0, check["position"]]
        assert int(row.argmax()) == check["top5_ids"][0]
        assert numpy.allclose(row[check["top5_ids"]].numpy(), check["top5_logits"], rtol=2**-7, atol=0)


@pytest.mark.smollm2
def test_smollm2_reproduces_its_reference(smollm2, tmp_path):
    reference = json.loads((ROOT / "data/models/smollm2-135m-instruct/reference.json").read_text())
    ids = reference["prompt_ids"]
    logits, report = ours(smollm2, tmp_path, [ids], dtype="float32", greedy=len(reference["greedy_ids"]) - len(ids))
    check_top5_of_rounded(logits, reference["prompt_logits"])
    assert ids + report["greedy_ids"] == reference["greedy_ids"]
    check = reference["nll_check"]
    logits, _ = ours(smollm2, tmp_path, [check["ids"]], dtype="float32")
    check_top5_of_rounded(logits, reference["logits_check"])
    assert abs(nll(logits, check["ids"]) / check["mean_nll_nats"] - 1) <= 1e-3
    answer = reference["chat_greedy_ids"]
    _, report = ours(smollm2, tmp_path, [reference["chat_ids"]], dtype="float32", greedy=len(answer))
    assert report["greedy_ids"] == answer


@pytest.mark.smollm2
def test_smollm2_equals_transformers(smollm2, tmp_path):
    ids = json.loads((ROOT / "data/models/smollm2-135m-instruct/reference.json").read_text())["nll_check"]["ids"]
    model = tiny.load(smollm2, torch.float32)
    whole, _ = ours(smollm2, tmp_path, [ids], dtype="float32")
    assert difference(whole, tiny.logits(model, [ids])) <= TOLERANCE
    chunked, _ = ours(smollm2, tmp_path, [ids], dtype="float32", chunks=[1, 100, len(ids) - 102, 1])
    assert difference(chunked, whole) <= 1e-5


@pytest.mark.smollm2
def test_smollm2_loads_within_a_second_without_copying(smollm2, tmp_path):
    _, report = ours(smollm2, tmp_path, [[1, 2, 3]])
    print(report)
    assert report["load_seconds"] <= 1.0
    assert report["anonymous_mb_after_loading"] <= 150
