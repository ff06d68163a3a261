"""A folder to train a GPT-2-family model in from random weights (`focus train --train scratch --model FOLDER`): config.json and a
byte-level BPE tokenizer.json trained on the given texts (.jsonl or .jsonl.gz of {"text": ...}, .txt, or folders of these)."""

import argparse
import gzip
import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END = "<|endoftext|>"


def texts(paths):
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            name = file.name.removesuffix(".gz")
            with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
                if name.endswith(".jsonl"):
                    for line in lines:
                        yield json.loads(line)["text"]
                elif name.endswith(".txt"):
                    yield lines.read()


def train_tokenizer(paths, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(texts(paths), trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=7)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--heads", type=int, default=5)
    parser.add_argument("--context", type=int, default=1024)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(options.texts, options.vocabulary)
    tokenizer.save(str(options.out / "tokenizer.json"))
    end = tokenizer.token_to_id(END)
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": tokenizer.get_vocab_size(), "n_positions": options.context,
        "n_embd": options.width, "n_layer": options.layers, "n_head": options.heads, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "bos_token_id": end, "eos_token_id": end, "tie_word_embeddings": True}
    (options.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (options.out / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "GPT2Tokenizer", "eos_token": END, "bos_token": END, "model_max_length": options.context}, indent=2) + "\n")


if __name__ == "__main__":
    main()
