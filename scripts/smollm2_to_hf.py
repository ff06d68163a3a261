"""Converts the GGUF file of SmolLM2-135M-Instruct into a Hugging Face folder.

    smollm2_to_hf.py MODEL.gguf TOKENIZER.json.gz OUT [--dtype bfloat16|float32]

Every number of config.json is read from the file's own metadata. The weights are the dequantised ones, rounded to the
dtype asked for. OUT must not exist; it appears under its name only once all of it is written.
"""

import argparse
import gzip
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file

LAYER_WEIGHTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_WEIGHTS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hugging_face_name(name: str) -> str:
    """'blk.3.attn_q.weight' -> 'model.layers.3.self_attn.q_proj.weight'."""
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER_WEIGHTS[parts[2]]}.weight"
    return f"{OTHER_WEIGHTS[parts[0]]}.weight"


def half_rotation(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection from GGUF's interleaved rotary pairs (x0 y0 x1 y1 ...) to x0 x1 ... y0 y1 ..."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(0, 2, 1, 3).reshape(rows, columns)


def model_config(meta: dict, tied: bool, dtype: str) -> dict:
    heads = meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta["llama.embedding_length"] // heads,
        "vocab_size": meta["llama.vocab_size"],
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": meta["llama.rope.freq_base"],
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        "torch_dtype": dtype,
    }


def token_files(meta: dict) -> dict[str, dict]:
    """generation_config.json and tokenizer_config.json. A reply ends with <|im_end|>, a document with <|endoftext|>."""
    tokens = meta["tokenizer.ggml.tokens"]
    bos, eos, unknown, pad = (meta[f"tokenizer.ggml.{n}_token_id"] for n in ("bos", "eos", "unknown", "padding"))
    stops = [eos] + [i for i in (tokens.index("<|endoftext|>"),) if i != eos]
    return {
        "generation_config.json": {"bos_token_id": bos, "eos_token_id": stops, "pad_token_id": pad},
        "tokenizer_config.json": {
            "tokenizer_class": "GPT2TokenizerFast",
            "bos_token": tokens[bos],
            "eos_token": tokens[eos],
            "unk_token": tokens[unknown],
            "pad_token": tokens[pad],
            "add_bos_token": False,
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": meta["llama.context_length"],
            "chat_template": meta["tokenizer.chat_template"],
        },
    }


def convert(gguf: Path, tokenizer: Path, out: Path, dtype: str) -> None:
    reader = GGUFReader(gguf)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    if meta["general.architecture"] != "llama":
        sys.exit(f"{gguf}: architecture {meta['general.architecture']!r}, expected 'llama'")
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            values = half_rotation(values, heads[kind])
        weights[hugging_face_name(tensor.name)] = torch.from_numpy(values.copy()).to(getattr(torch, dtype))

    files = {"config.json": model_config(meta, "lm_head.weight" not in weights, dtype), **token_files(meta)}
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=2) + "\n")
    (out / "tokenizer.json").write_bytes(gzip.decompress(tokenizer.read_bytes()))
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    args = parser.parse_args()
    if args.out.exists():
        sys.exit(f"{args.out} exists already")
    partial = args.out.with_name(f"{args.out.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        convert(args.gguf, args.tokenizer, partial, args.dtype)
        partial.rename(args.out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    main()
