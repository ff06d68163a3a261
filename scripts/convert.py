"""Converts a model into a Hugging Face folder: a GGUF file, or a folder with PyTorch weights (pytorch_model.bin).

    convert.py SOURCE OUT [--tokenizer FILE|DIR] [--dtype bfloat16|float16|float32] [--shard-gb N] [--json] [--quiet]

GGUF: architectures llama (also Mistral and SmolLM2), qwen2, qwen3, gemma2, olmo2 and gpt2, of any quantisation that the gguf
package reads; config.json comes from the file's own metadata, the tokenizer from --tokenizer (tokenizer.json, maybe .gz, or a folder)
or, without it, from the metadata by way of transformers. PyTorch weights are read with weights_only, so that no code in them
runs, and keep their type unless --dtype says otherwise. Weights go through memory one tensor and one shard at a time. OUT must not exist; it
appears under its name only once all of it is written.
"""

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Imports take seconds; an interrupt ends them without a traceback.

import argparse
import gzip
import json
import os
import pickle
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

ROTARY = {
    "embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "layer": "model.layers.{}.",
    "weights": ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm"],
}
EXTRA = {"qwen3": ["self_attn.q_norm", "self_attn.k_norm"], "gemma2": ["pre_feedforward_layernorm", "post_feedforward_layernorm"],
         "olmo2": ["self_attn.q_norm", "self_attn.k_norm", "post_feedforward_layernorm"]}
GPT2 = {
    "embed": "transformer.wte", "positions": "transformer.wpe", "norm": "transformer.ln_f", "head": "lm_head",
    "layer": "transformer.h.{}.", "weights": ["ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"],
}
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
                 "gemma2": "Gemma2ForCausalLM", "olmo2": "Olmo2ForCausalLM", "gpt2": "GPT2LMHeadModel"}


class ConversionError(Exception):
    """What is wrong, in one line."""


class ShardWriter:
    """Collects tensors and writes them as safetensors shards of bounded size."""

    def __init__(self, folder: Path, limit: int):
        self.folder, self.limit = folder, limit
        self.pending: dict[str, torch.Tensor] = {}
        self.size, self.total = 0, 0
        self.shards: list[list[str]] = []

    def add(self, name: str, tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        if self.pending and self.size + size > self.limit:
            self.flush()
        if name in self.pending or any(name in shard for shard in self.shards):
            raise ConversionError(f"the weight {name} comes twice")
        self.pending[name] = tensor
        self.size += size
        self.total += size

    def flush(self) -> None:
        file = self.folder / f"shard-{len(self.shards)}"
        save_file(self.pending, file, metadata={"format": "pt"})
        file.chmod(0o644)
        self.shards.append(list(self.pending))
        self.pending, self.size = {}, 0

    def finish(self) -> None:
        if self.pending:
            self.flush()
        if not self.shards:
            raise ConversionError("there are no weights in it")
        if len(self.shards) == 1:
            (self.folder / "shard-0").rename(self.folder / "model.safetensors")
            return
        names = [f"model-{i + 1:05}-of-{len(self.shards):05}.safetensors" for i in range(len(self.shards))]
        for i, name in enumerate(names):
            (self.folder / f"shard-{i}").rename(self.folder / name)
        index = {"metadata": {"total_size": self.total},
                 "weight_map": {tensor: names[i] for i, shard in enumerate(self.shards) for tensor in shard}}
        write_json(self.folder / "model.safetensors.index.json", index)


def write_json(file: Path, content: dict) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(file: Path) -> dict:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{file.name}: not valid JSON: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise ConversionError(f"{file.name}: the top level is not a JSON object")
    return content


def half_rotation(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection (or their bias) from GGUF's interleaved rotary pairs (x0 y0 x1 y1 ...) to x0 x1 ... y0 y1 ..."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(weight.shape)


class GgufModel:
    """A GGUF file seen as a model of Hugging Face's naming."""

    def __init__(self, file: Path):
        self.file = file
        self.reader = gguf.GGUFReader(file)
        self.meta = {name: field.contents() for name, field in self.reader.fields.items()}
        self.kind = self.meta.get("general.architecture")
        if self.kind not in ARCHITECTURES:
            raise ConversionError(f"architecture {self.kind!r} is not supported (known: {', '.join(ARCHITECTURES)})")
        self.layers = self.field("block_count")
        self.names = self.hugging_face_names()
        self.stored = {tensor.name for tensor in self.reader.tensors}

    def field(self, name: str, default=None):
        value = self.meta.get(f"{self.kind}.{name}", default)
        if value is None:
            raise ConversionError(f"the metadata lack {self.kind}.{name}")
        return value

    def hugging_face_names(self) -> dict[str, str]:
        """GGUF names of the architecture's tensors -> Hugging Face names."""
        arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == self.kind)
        known = gguf.get_tensor_name_map(arch, self.layers)
        family = GPT2 if self.kind == "gpt2" else ROTARY
        modules = [family[part] for part in ("embed", "positions", "norm", "head") if part in family]
        for layer in range(self.layers):
            modules += [family["layer"].format(layer) + weight for weight in family["weights"] + EXTRA.get(self.kind, [])]
        names = {}
        for module in modules:
            stored = known.get_name(module)
            if stored is not None:
                names |= {f"{stored}.{part}": f"{module}.{part}" for part in ("weight", "bias")}
        return names

    def head_size(self) -> int:
        return self.field("attention.key_length", self.field("embedding_length") // self.field("attention.head_count"))

    def rope(self) -> dict:
        kind = self.meta.get(f"{self.kind}.rope.scaling.type", "none")
        base = {"rope_theta": float(self.field("rope.freq_base", 10000.0)), "rope_scaling": None}
        original = self.meta.get(f"{self.kind}.rope.scaling.original_context_length")
        if "rope_freqs.weight" in self.stored:
            base["rope_scaling"] = self.llama3_scaling(base["rope_theta"])
        elif kind in ("linear", "yarn"):
            base["rope_scaling"] = {"rope_type": kind, "factor": float(self.field("rope.scaling.factor"))}
            if kind == "yarn" and original:
                base["rope_scaling"]["original_max_position_embeddings"] = original
        elif kind != "none":
            raise ConversionError(f"rope scaling {kind!r} is not supported (known: none, linear, yarn)")
        return base

    def llama3_scaling(self, theta: float) -> dict:
        """GGUF keeps what Llama 3.1's scaling divides each frequency by, not its parameters: one of the published sets must fit."""
        tensor = next(t for t in self.reader.tensors if t.name == "rope_freqs.weight")
        stored = np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float64).reshape(-1)
        size = self.head_size()
        wavelength = 2 * np.pi * theta ** (np.arange(0, size, 2) / size)
        for factor in (8.0, 32.0):
            smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
            divisor = np.where(wavelength < 8192 / 4.0, 1.0, np.where(wavelength > 8192, factor, 1 / ((1 - smooth) / factor + smooth)))
            if stored.shape == divisor.shape and np.allclose(stored, divisor, rtol=1e-4):
                return {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 8192}
        raise ConversionError("rope_freqs.weight fits none of Llama 3.1's and 3.2's scalings")

    def token_id(self, name: str) -> int | None:
        return self.meta.get(f"tokenizer.ggml.{name}_token_id")

    def config(self, dtype: str) -> dict:
        vocab = next((t for t in self.reader.tensors if t.name == "token_embd.weight"), None)
        if vocab is None:
            raise ConversionError("the tensor token_embd.weight is missing")
        config = {"architectures": [ARCHITECTURES[self.kind]], "model_type": self.kind, "vocab_size": int(vocab.shape[1]),
                  "tie_word_embeddings": "output.weight" not in self.stored, "bos_token_id": self.token_id("bos"),
                  "eos_token_id": self.token_id("eos"), "pad_token_id": self.token_id("padding"), "torch_dtype": dtype}
        width, heads = self.field("embedding_length"), self.field("attention.head_count")
        if self.kind == "gpt2":
            return config | {"n_embd": width, "n_layer": self.layers, "n_head": heads, "n_positions": self.field("context_length"),
                             "n_inner": self.field("feed_forward_length"), "activation_function": "gelu_new",
                             "layer_norm_epsilon": rounded(self.field("attention.layer_norm_epsilon"))}
        config |= {"hidden_size": width, "intermediate_size": self.field("feed_forward_length"), "num_hidden_layers": self.layers,
                   "num_attention_heads": heads, "num_key_value_heads": self.field("attention.head_count_kv", heads),
                   "head_dim": self.head_size(), "max_position_embeddings": self.field("context_length"),
                   "rms_norm_eps": rounded(self.field("attention.layer_norm_rms_epsilon")), "hidden_act": "silu",
                   "attention_bias": "blk.0.attn_q.bias" in self.stored, "mlp_bias": "blk.0.ffn_gate.bias" in self.stored, **self.rope()}
        if self.kind == "gemma2":
            # Only the 27B model scales scores by its width instead of the head size.
            scalar = width // heads if self.layers == 46 else self.head_size()
            config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": scalar,
                       "sliding_window": self.field("attention.sliding_window", 4096),
                       "attn_logit_softcapping": self.meta.get("gemma2.attn_logit_softcapping"),
                       "final_logit_softcapping": self.meta.get("gemma2.final_logit_softcapping")}
        return config

    def weights(self, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        interleaved = {"attn_q": self.field("attention.head_count"),
                       "attn_k": self.field("attention.head_count_kv", self.field("attention.head_count"))} if self.kind == "llama" else {}
        for tensor in self.reader.tensors:
            if tensor.name == "rope_freqs.weight":
                continue
            if tensor.name not in self.names:
                raise ConversionError(f"the tensor {tensor.name} belongs to no weight of {self.kind}")
            values = np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            values = values.reshape(tuple(int(size) for size in reversed(tensor.shape)))
            module = tensor.name.split(".")[-2]
            if module in interleaved:
                values = half_rotation(values, interleaved[module])
            if self.kind == "gemma2" and module.endswith("norm"):
                values = values - 1
            if self.kind == "gpt2" and values.ndim == 2 and module not in ("token_embd", "position_embd", "output"):
                values = values.T
            yield self.names[tensor.name], torch.from_numpy(np.array(values, order="C")).to(dtype)

    def token_files(self) -> dict[str, dict]:
        """generation_config.json and tokenizer_config.json."""
        tokens = self.meta.get("tokenizer.ggml.tokens", [])
        special = {name: self.token_id(key) for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))}
        # A reply may end otherwise than a document.
        stops = [special["eos"], self.token_id("eot"), self.token_id("eom")]
        stops += [tokens.index(token) for token in ("<|endoftext|>",) if token in tokens]
        stops = list(dict.fromkeys(stop for stop in stops if stop is not None))
        tokenizer = {f"{name}_token": tokens[i] for name, i in special.items() if i is not None and i < len(tokens)}
        tokenizer |= {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": bool(self.meta.get("tokenizer.ggml.add_bos_token", False)), "clean_up_tokenization_spaces": False,
                      "model_max_length": self.field("context_length")}
        if "tokenizer.chat_template" in self.meta:
            tokenizer["chat_template"] = self.meta["tokenizer.chat_template"]
        generation = {"bos_token_id": special["bos"], "eos_token_id": stops, "pad_token_id": special["pad"]}
        return {"generation_config.json": {key: value for key, value in generation.items() if value not in (None, [])},
                "tokenizer_config.json": tokenizer}


def rounded(value: float) -> float:
    """A float32 of the metadata as the decimal it was meant to be."""
    return float(f"{value:.6g}")


def write_tokenizer(source: Path | None, model: GgufModel, out: Path) -> None:
    if source is None:
        from transformers import AutoTokenizer, logging
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            tokenizer = AutoTokenizer.from_pretrained(model.file.parent, gguf_file=model.file.name)
            tokenizer.backend_tokenizer.save(str(out / "tokenizer.json"))
        except Exception as error:  # Whatever it is, the way out is the same.
            raise ConversionError(f"no tokenizer could be made from the metadata ({first_line(error)}); give one with --tokenizer") from error
        return
    if source.is_dir():
        source = next((source / name for name in ("tokenizer.json", "tokenizer.json.gz") if (source / name).exists()), source / "tokenizer.json")
    if not source.exists():
        raise ConversionError(f"--tokenizer {source}: no such file")
    content = source.read_bytes()
    (out / "tokenizer.json").write_bytes(gzip.decompress(content) if source.suffix == ".gz" else content)


def convert_gguf(file: Path, out: Path, dtype: str | None, tokenizer: Path | None, shard_size: int) -> ShardWriter:
    try:
        model = GgufModel(file)
    except (ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
        raise ConversionError(f"not a readable GGUF file: {first_line(error)}") from error
    write_json(out / "config.json", model.config(dtype or "bfloat16"))
    for name, content in model.token_files().items():
        write_json(out / name, content)
    write_tokenizer(tokenizer, model, out)
    writer = ShardWriter(out, shard_size)
    for name, tensor in model.weights(getattr(torch, dtype or "bfloat16")):
        writer.add(name, tensor)
    writer.finish()
    return writer


def weight_files(folder: Path) -> list[Path]:
    index = folder / "pytorch_model.bin.index.json"
    if index.exists():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise ConversionError(f"{index.name}: no weight_map of names of files")
        names = sorted(set(weight_map.values()))
        for name in names:
            if Path(name).name != name:
                raise ConversionError(f"{index.name}: the shard name {name!r} is not a plain file name")
    else:
        names = ["pytorch_model.bin"]
    for name in names:
        if not (folder / name).exists():
            raise ConversionError(f"there is no {name}")
    return [folder / name for name in names]


def read_pickle(file: Path) -> dict[str, torch.Tensor]:
    try:
        try:
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # The format before torch 1.6 cannot be mapped.
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # Its text tells how to run the code in the file all the same.
        raise ConversionError(f"{file.name}: refused, it is not plain weights: damaged, or it holds code or objects "
                              "other than tensors") from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise ConversionError(f"{file.name}: cannot be read as PyTorch weights: {first_line(error)}") from error
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise ConversionError(f"{file.name}: it holds something else than named tensors")
    return content


def convert_pytorch(folder: Path, out: Path, dtype: str | None, tokenizer: Path | None, shard_size: int) -> ShardWriter:
    if tokenizer is not None:
        raise ConversionError("--tokenizer is for GGUF files; a folder's own tokenizer is kept")
    if not (folder / "config.json").exists():
        raise ConversionError("it has no config.json")
    for file in folder.iterdir():
        keep = file.suffix in (".json", ".jinja", ".model", ".txt") or file.name.endswith(".json.gz")
        if file.is_file() and keep and not file.name.endswith(".index.json"):
            shutil.copyfile(file, out / file.name)
    config = read_json(folder / "config.json")
    writer = ShardWriter(out, shard_size)
    for file in weight_files(folder):
        content = read_pickle(file)
        for name in list(content):
            tensor = content.pop(name)
            if name == "lm_head.weight" and config.get("tie_word_embeddings", False):
                continue  # The embedding serves as the head.
            wanted = getattr(torch, dtype) if dtype and tensor.is_floating_point() else tensor.dtype
            writer.add(name, tensor.detach().to(wanted).clone(memory_format=torch.contiguous_format))
    writer.finish()
    return writer


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]


def interrupt_once(*_) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # What was written is removed first.
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--shard-gb", type=float, default=2.0)
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument("--quiet", action="store_true", help="print errors only (and JSON, if asked for)")
    args = parser.parse_args()
    if args.quiet:
        warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, interrupt_once)
    partial = args.out.with_name(f"{args.out.name}.partial-{os.getpid()}")
    try:
        if args.out.exists():
            raise ConversionError(f"{args.out} exists already")
        if not args.source.exists():
            raise ConversionError("no such file or folder")
        partial.mkdir(parents=True)
        convert = convert_pytorch if args.source.is_dir() else convert_gguf
        writer = convert(args.source, partial, args.dtype, args.tokenizer, int(args.shard_gb * 1e9))
        partial.rename(args.out)
    except KeyboardInterrupt:
        return 130
    except (ConversionError, OSError) as error:
        return refuse(args.source, first_line(error))
    except Exception as error:  # A file may be wrong in more ways than are known here.
        return refuse(args.source, f"cannot be converted: {type(error).__name__}: {first_line(error)}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if args.json:
        print(json.dumps({"out": str(args.out), "tensors": sum(map(len, writer.shards)), "bytes": writer.total, "shards": len(writer.shards)}))
    elif not args.quiet:
        print(f"wrote {args.out}")
    return 0


def refuse(source: Path, what: str) -> int:
    print(f"focus: error: {source}: {what}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
