"""Perplexity of a text file by transformers alone, the oracle of `focus eval --method full`.

    perplexity_oracle.py MODEL TEXT.txt --context 512 --stride 256 [--max-windows 8]

The loop is Hugging Face's strided one: windows begin every `stride` tokens; of each window only those tokens are scored that
no earlier window held, and never a window's first. The text is taken as it is, with the tokenizer's own special tokens.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast


def perplexity(folder: Path, text: str, context: int, stride: int, max_windows: int = 0) -> dict:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = torch.tensor(tokenizer(text)["input_ids"])
    total, scored, windows, seen = 0.0, 0, 0, 0
    for begin in range(0, len(ids), stride):
        window = ids[begin : begin + context]
        end = begin + len(window)
        first = max(seen - begin, 1)  # first scored position inside the window
        if first < len(window):
            with torch.no_grad():
                log_probabilities = model(window[None]).logits[0].double().log_softmax(-1)
            picked = log_probabilities[:-1].gather(1, window[1:, None])[first - 1 :]
            total -= picked.sum().item()
            scored += picked.numel()
            windows += 1
        seen = end
        if end == len(ids) or windows == max_windows > 0:
            break
    nll = total / scored
    return {"perplexity": math.exp(nll), "nll": nll, "tokens_scored": scored}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--stride", type=int, required=True)
    parser.add_argument("--max-windows", type=int, default=0)
    args = parser.parse_args()
    text = args.text.read_text(encoding="utf-8")
    print(json.dumps(perplexity(args.model, text, args.context, args.stride, args.max_windows)))


if __name__ == "__main__":
    main()
