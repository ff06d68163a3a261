"""The side of transformers in `focus bench prefill|decode --methods transformers`: answers one JSON object a line.

The first line says {"model", "dtype", "threads", maybe "rope_scaling": [type, factor]} and is answered by {}. Then {"prefill": ids} forgets
what came before and reads a prompt, {"decode": ids} reads ids one by one after it and forgets them again; either is answered by
{"ms", "logits"}, the logits of the last token. What goes wrong is answered by {"error"}."""

import copy
import json
import os
import sys
import time


class Server:
    def __init__(self, request: dict):
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        self.torch = torch
        torch.set_num_threads(request["threads"])
        config = AutoConfig.from_pretrained(request["model"])
        if "rope_scaling" in request:
            kind, factor = request["rope_scaling"]
            context = config.max_position_embeddings
            config.max_position_embeddings = int(context * factor)
            config.rope_parameters = {**config.rope_parameters, "rope_type": kind, "factor": factor,
                                      "original_max_position_embeddings": context}
        self.model = AutoModelForCausalLM.from_pretrained(request["model"], config=config, dtype=request["dtype"],
                                                          attn_implementation="sdpa").eval()
        self.cache = None

    def step(self, ids: list[int]):
        return self.model(self.torch.tensor([ids]), past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits[0, -1]

    def prefill(self, ids: list[int]):
        from transformers import DynamicCache

        self.cache = DynamicCache(config=self.model.config)
        return self.step(ids)

    def decode(self, ids: list[int]):
        for token in ids:
            logits = self.step([token])
            int(logits.argmax())
        return logits

    def answer(self, request: dict) -> dict:
        with self.torch.inference_mode():
            kept = copy.deepcopy(self.cache) if "decode" in request else None
            start = time.perf_counter()
            logits = self.prefill(request["prefill"]) if "prefill" in request else self.decode(request["decode"])
            seconds = time.perf_counter() - start
            self.cache = kept or self.cache
            return {"ms": 1e3 * seconds, "logits": logits.float().tolist()}


def main() -> None:
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    server = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if server is None:
                server, answer = Server(request), {}
            else:
                answer = server.answer(request)
        except Exception as error:  # noqa: BLE001
            answer = {"error": f"{type(error).__name__}: {error}".replace("\n", " ")}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
