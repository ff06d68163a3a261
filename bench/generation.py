"""Prefill and decode of a model, ours under full attention and Focus beside transformers (SDPA), in one run on one machine.

    bench/generation.py --model DIR [--adapter DIR] --text FILE [--lengths 1024,4096] [--new-tokens 32] [--threads 2] [--repeats 3]

Prints one JSON object a length and method: the median, smallest and largest seconds of the prefill and tokens a second of decoding
over the repeats, which go round the methods, and the ratio of the medians to transformers'. Greedy ids of full attention must
equal those of transformers up to where the two best logits are closer than rounding, otherwise nothing is printed and the exit status is 1."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def ours(args, prompt: Path, adapter: Path | None) -> dict:
    binary = ROOT / os.environ.get("FOCUS_BUILD", "build/release") / "bin/focus"
    command = [binary, "generate", "--model", args.model, "--prompt-file", prompt, "-n", args.new_tokens, "--ignore-eos", "--json",
               "--quiet", "--threads", args.threads, "--prefill-chunk", args.prefill_chunk]
    if args.dtype:
        command += ["--dtype", args.dtype]
    if adapter:
        command += ["--adapter", adapter]
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr.strip())
    result = json.loads(run.stdout)
    return {"prefill": len(result["prompt_ids"]) / result["prefill_tokens_per_s"], "decode": result["decode_tokens_per_s"],
            "ids": result["ids"], "pairs_kept": result["pairs_kept_prefill"], "prompt_ids": result["prompt_ids"]}


def theirs(args, model, prompt_ids: list[int]) -> dict:
    import torch
    from transformers import DynamicCache

    with torch.inference_mode():
        cache = DynamicCache(config=model.config)
        start = time.perf_counter()
        logits = model(torch.tensor([prompt_ids]), past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        prefill = time.perf_counter() - start
        ids, gaps = [], []
        start = time.perf_counter()
        while True:
            best = logits.float().topk(2).values
            gaps.append(float((best[0] - best[1]) / best[0].abs().clamp_min(1e-6)))
            ids.append(int(logits.argmax()))
            if len(ids) == args.new_tokens:
                break
            logits = model(torch.tensor([ids[-1:]]), past_key_values=cache, use_cache=True).logits[0, -1]
        decode = len(ids) / (time.perf_counter() - start)
    return {"prefill": prefill, "decode": decode, "ids": ids, "gaps": gaps, "pairs_kept": 1.0}


def same_ids(mine: list[int], reference: dict, rounding: float) -> bool:
    for a, b, gap in zip(mine, reference["ids"], reference["gaps"]):
        if a != b:
            return gap < rounding
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="plain text, long enough for the lengths")
    parser.add_argument("--lengths", default="1024,4096")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prefill-chunk", type=int, default=4096)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"])
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=args.dtype or "auto", attn_implementation="sdpa").eval()
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    text = args.text.read_text(encoding="utf-8")
    offsets = tokenizer.encode(text[:60_000], add_special_tokens=False).offsets
    methods = {"full": None} | ({"focus": args.adapter} if args.adapter else {})
    for length in map(int, args.lengths.split(",")):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as prompt:
            prompt.write(text[:offsets[length - 1][1]])
            prompt.flush()
            runs: dict[str, list[dict]] = {name: [] for name in [*methods, "transformers"]}
            for _ in range(args.repeats):
                for name, adapter in methods.items():
                    runs[name].append(ours(args, Path(prompt.name), adapter))
                runs["transformers"].append(theirs(args, model, runs["full"][0]["prompt_ids"]))
        rounding = 1e-3 if model.dtype == torch.float32 else 2**-6
        if not same_ids(runs["full"][0]["ids"], runs["transformers"][0], rounding):
            print(f"length {length}: the greedy ids differ from those of transformers", file=sys.stderr)
            return 1
        median = {name: {key: statistics.median(run[key] for run in each) for key in ("prefill", "decode")} for name, each in runs.items()}
        for name, each in runs.items():
            prefill, decode = [run["prefill"] for run in each], [run["decode"] for run in each]
            print(json.dumps({
                "bench": "generation", "method": name, "length": len(runs["full"][0]["prompt_ids"]), "dtype": str(model.dtype).removeprefix("torch."),
                "threads": args.threads, "prefill_s_median": median[name]["prefill"], "prefill_s_min": min(prefill), "prefill_s_max": max(prefill),
                "decode_tokens_per_s_median": median[name]["decode"], "decode_tokens_per_s_min": min(decode),
                "decode_tokens_per_s_max": max(decode), "pairs_kept": each[0]["pairs_kept"],
                "prefill_ratio_to_transformers": median["transformers"]["prefill"] / median[name]["prefill"],
                "decode_ratio_to_transformers": median[name]["decode"] / median["transformers"]["decode"]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
