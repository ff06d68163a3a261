"""focus convert: GGUF files and PyTorch weights of every family, hostile ones, and SmolLM2's known answers."""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from conftest import ROOT, SMOLLM2, STORIES
from safetensors.torch import load_file
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import make_tiny_models as tiny
from test_models import difference, ours, random_ids

sys.path.insert(0, str(ROOT / "scripts"))
from convert import half_rotation  # noqa: E402


def rotate_pairs(x, angles):
    """Interleaved rotary embedding of x [rows]: (x0, x1) are turned together."""
    even, odd = x[0::2], x[1::2]
    turned = np.empty_like(x)
    turned[0::2] = even * np.cos(angles) - odd * np.sin(angles)
    turned[1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return turned


def rotate_halves(x, angles):
    """Rotary embedding of x [rows] as in Hugging Face: (x0, x[rows / 2]) are turned together."""
    first, second = np.split(x, 2)
    return np.concatenate([first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)])


def test_both_rotary_layouts_give_the_same_scores():
    random = np.random.default_rng(0)
    heads, size, width = 3, 8, 5
    q, k = random.normal(size=(2, heads * size, width))
    x, y = random.normal(size=(2, width))
    angle_x, angle_y = random.normal(size=(2, size // 2))
    q_hf, k_hf = half_rotation(q, heads), half_rotation(k, heads)
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        interleaved = rotate_pairs(q[rows] @ x, angle_x) @ rotate_pairs(k[rows] @ y, angle_y)
        halves = rotate_halves(q_hf[rows] @ x, angle_x) @ rotate_halves(k_hf[rows] @ y, angle_y)
        assert halves == pytest.approx(interleaved, rel=1e-12)


def rotate_rows(weight, heads):
    """half_rotation's inverse: rows as GGUF keeps them for llama."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(model, file, quantised=False):
    """A GGUF file of a tiny model, as llama.cpp's converter lays it out."""
    config = model.config
    kind = {"mistral": "llama"}.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(file, kind)
    gpt2 = kind == "gpt2"
    width, heads = config.hidden_size, config.num_attention_heads
    writer.add_embedding_length(width)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_head_count(heads)
    writer.add_feed_forward_length(4 * width if gpt2 else config.intermediate_size)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    kv_heads = heads
    if gpt2:
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        kv_heads = config.num_key_value_heads
        writer.add_head_count_kv(kv_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_key_length(model.model.layers[0].self_attn.head_dim)
        if config.rope_parameters["rope_type"] == "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(config.rope_parameters["factor"])
            writer.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
        writer.add_sliding_window(config.sliding_window)
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for key, weight in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weight.float().numpy()
        if kind == "llama" and key.split(".")[-2] in ("q_proj", "k_proj"):
            values = rotate_rows(values, heads if "q_proj" in key else kv_heads)
        if kind == "gemma2" and "norm" in key:
            values = values + 1
        if gpt2 and values.ndim == 2 and "wte" not in key and "wpe" not in key:
            values = values.T
        values = np.ascontiguousarray(values)
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if quantised and values.ndim == 2:
            kinds = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(values, kinds), raw_dtype=kinds)
        else:
            writer.add_tensor(name, values)
    if config.model_type == "llama" and config.rope_parameters["rope_type"] == "llama3":
        plain = 1.0 / (config.rope_parameters["rope_theta"] ** (np.arange(0, config.head_dim, 2) / config.head_dim))
        scaled = model.model.rotary_emb.inv_freq.double().numpy()
        writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


LLAMA3 = dict(rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, rope_theta=5e5,
                                   original_max_position_embeddings=8192))


@pytest.mark.parametrize(("name", "changes"), [
    ("gpt2", {}), ("llama_gqa", {}), ("llama_head_dim", dict(max_position_embeddings=32768, **LLAMA3)),
    ("rope_yarn", {}), ("mistral_full", {}), ("qwen2", {}), ("qwen3", {}), ("olmo2_gqa", dict(attention_bias=False)),
    ("gemma2", dict(query_pre_attn_scalar=16)),
])
def test_gguf_of_every_family(focus, name, changes, tmp_path):
    model = tiny.build(name, **changes)
    write_gguf(model, tmp_path / "model.gguf")
    result = focus("convert", tmp_path / "model.gguf", tmp_path / "out", "--tokenizer", STORIES, "--dtype", "float32", "--shard-gb", "2e-5")
    assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    ids = random_ids(2, 30)
    expected = tiny.logits(model, ids)
    got, _ = ours(tmp_path / "out", tmp_path, ids)
    assert difference(got, expected) <= 1e-4
    theirs = tiny.logits(tiny.load(tmp_path / "out", torch.float32), ids)
    assert difference(theirs, expected) <= 1e-4


@pytest.mark.parametrize("name", ["gpt2", "llama_gqa", "qwen2", "qwen3", "gemma2"])
def test_the_gguf_files_of_these_tests_are_what_transformers_reads(name, tmp_path):
    model = tiny.build(name, **(dict(query_pre_attn_scalar=16) if name == "gemma2" else {}))
    write_gguf(model, tmp_path / "model.gguf")
    tensors = load_gguf_checkpoint(str(tmp_path / "model.gguf"), return_tensors=True, model_to_load=model)["tensors"]
    state = model.state_dict()
    assert set(state) - {"lm_head.weight"} <= set(tensors)
    for key, tensor in tensors.items():
        assert torch.allclose(tensor.float(), state[key], rtol=1e-6, atol=1e-6), key


def test_quantised_gguf_in_one_file(focus, tmp_path):
    model = tiny.build("llama_gqa", hidden_size=192, intermediate_size=256, head_dim=32)
    write_gguf(model, tmp_path / "model.gguf", quantised=True)
    result = focus("convert", tmp_path / "model.gguf", tmp_path / "out", "--tokenizer", STORIES / "tokenizer.json")
    assert result.returncode == 0, result.stderr
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["torch_dtype"] == "bfloat16" and config["eos_token_id"] == 2
    stored = load_file(tmp_path / "out/model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    for key, weight in model.state_dict().items():
        assert (stored[key].float() - weight).abs().max() <= 0.02 * weight.abs().max()


def test_pytorch_weights_with_and_without_an_index(focus, tmp_path):
    ids = random_ids(1, 25)
    for name, shards in (("qwen2", 1), ("llama_tied", 2)):
        model = tiny.save(name, tmp_path / name / "model")
        expected = tiny.logits(model, ids)
        folder = tmp_path / name / "model"
        (folder / "model.safetensors").unlink()
        shutil.copy(STORIES / "tokenizer.json", folder)
        state = list(model.state_dict().items())
        if shards == 1:
            torch.save(dict(state), folder / "pytorch_model.bin")
        else:
            files = [f"pytorch_model-0000{i + 1}-of-00002.bin" for i in range(2)]
            weight_map = {key: files[i % 2] for i, (key, _) in enumerate(state)}
            for file in files:
                torch.save({key: value for key, value in state if weight_map[key] == file}, folder / file,
                           _use_new_zipfile_serialization=file == files[0])
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
        assert "focus convert" in focus("generate", "--model", folder, "--prompt", "x").stderr
        out = tmp_path / name / "out"
        result = focus("convert", folder, out)
        assert result.returncode == 0, result.stderr
        assert sorted(file.name for file in out.iterdir()) == ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
        got, report = ours(out, tmp_path, ids)
        assert difference(got, expected) <= 1e-4 and report["dtype"] == "float32"


class Code:
    def __reduce__(self):
        return (Path.touch, (Path("touched-by-a-pickle"),))


def test_sources_that_cannot_be_converted(focus, tmp_path):
    def refused(source, *words, flags=()):
        result = focus("convert", source, tmp_path / "out", *flags, cwd=tmp_path)
        assert result.returncode == 1, result.stderr
        assert result.stderr.count("\n") == 1 and result.stderr.startswith(("error: ", "focus: error: ")), result.stderr
        for word in words:
            assert word in result.stderr, result.stderr
        assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("out")] == []

    refused(tmp_path / "absent", "no such file")
    (tmp_path / "junk.gguf").write_bytes(b"GGUF" + bytes(range(200)))
    refused(tmp_path / "junk.gguf", "not a readable GGUF file")
    writer = gguf.GGUFWriter(tmp_path / "rwkv.gguf", "rwkv6")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    refused(tmp_path / "rwkv.gguf", "'rwkv6' is not supported", "llama, qwen2")
    write_gguf(tiny.build("llama_gqa"), tmp_path / "model.gguf")
    refused(tmp_path / "model.gguf", "no such file", flags=["--tokenizer", tmp_path / "none.json"])
    refused(tmp_path / "model.gguf", "--tokenizer")

    folder = tmp_path / "pickled"
    folder.mkdir()
    refused(folder, "no config.json")
    (folder / "config.json").write_text("{}")
    refused(folder, "no pytorch_model.bin")
    torch.save({"a": Code()}, folder / "pytorch_model.bin")
    refused(folder, "pytorch_model.bin", "refused")
    assert not (tmp_path / "touched-by-a-pickle").exists()
    torch.save([1, 2], folder / "pytorch_model.bin")
    refused(folder, "something else")
    (folder / "pytorch_model.bin").write_bytes(b"")
    refused(folder, "pytorch_model.bin")
    (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "../x.bin"}}')
    refused(folder, "plain file name")
    (tmp_path / "there").mkdir()
    result = focus("convert", folder, tmp_path / "there")
    assert result.returncode == 1 and "exists already" in result.stderr


@pytest.mark.smollm2
def test_converted_model_gives_the_known_answers():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    reference = json.loads((ROOT / "data/models/smollm2-135m-instruct/reference.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(SMOLLM2)
    assert tokenizer(reference["prompt"])["input_ids"] == reference["prompt_ids"]
    ids = torch.tensor([reference["prompt_ids"]])
    with torch.no_grad():
        logits = model(ids).logits[0]
        greedy = model.generate(ids, attention_mask=torch.ones_like(ids), max_length=len(reference["greedy_ids"]), do_sample=False)
    assert greedy[0].tolist() == reference["greedy_ids"]
    # The reference kept the dequantised weights in float32; ours are rounded to bfloat16, which moves logits by this much.
    for row in reference["prompt_logits"]:
        found = logits[row["position"], row["top5_ids"]]
        assert torch.allclose(found, torch.tensor(row["top5_logits"]), atol=0.25), (row, found)
