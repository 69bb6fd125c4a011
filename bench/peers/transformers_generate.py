"""transformers' `generate` as a contestant: its arguments are FOLDER THREADS DTYPE [EXPERTS].

It has no continuous batching here: requests that wait are taken together, padded on the left, up
to the bench's limit, and the next ones when that batch has ended. A request's tokens beyond its
own number, computed because its batch goes on, are not counted.
"""

import sys
import time
from collections.abc import Callable

import torch
from pipe import Request, Stamps, open_replies, serve
from transformers import AutoConfig, AutoModelForCausalLM, MuseSparkForConditionalGeneration
from transformers.generation import StoppingCriteria


class Clock(StoppingCriteria):
    """Notes when each step's token is there; never stops anything."""

    def __init__(self, tick: Callable[[], None]) -> None:
        """Call `tick` after every token of the batch."""
        self._tick = tick

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **_: object
    ) -> torch.BoolTensor:
        """Tick, and let all rows [S] go on."""
        self._tick()
        return torch.zeros(len(input_ids), dtype=torch.bool)


class Static:
    """Static batches by `generate`."""

    def __init__(self, folder: str, dtype: torch.dtype, experts: str | None = None) -> None:
        """Load the checkpoint; `experts` is the implementation of a mixture, if not the default."""
        muse = AutoConfig.from_pretrained(folder).model_type == "muse_spark"
        kind = MuseSparkForConditionalGeneration if muse else AutoModelForCausalLM
        options = {"experts_implementation": experts} if experts else {}
        self._model = kind.from_pretrained(folder, dtype=dtype, **options).eval()
        self._model.generation_config.eos_token_id = None  # exactly max_tokens come

    def answer(self, requests: list[Request], batch: int) -> Stamps:
        """Serve in order of arrival, at most `batch` at once."""
        stamps: Stamps = [[] for _ in requests]
        waiting = sorted(range(len(requests)), key=lambda index: requests[index].at_s)
        begin = time.perf_counter()
        while waiting:
            now = time.perf_counter() - begin
            due = [index for index in waiting if requests[index].at_s <= now][:batch]
            if not due:
                time.sleep(requests[waiting[0]].at_s - now)
                continue
            waiting = [index for index in waiting if index not in due]

            def tick(due: list[int] = due) -> None:
                now = time.perf_counter() - begin
                for index in due:
                    if len(stamps[index]) < requests[index].max_tokens:
                        stamps[index].append(now)

            self._generate([requests[index] for index in due], tick)
        return stamps

    @torch.inference_mode()
    def _generate(self, requests: list[Request], tick: Callable[[], None]) -> None:
        """Run one batch to the end of its longest request."""
        longest = max(len(request.prompt) for request in requests)
        ids = torch.zeros(len(requests), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            ids[row, longest - len(request.prompt) :] = torch.tensor(request.prompt)
            mask[row, longest - len(request.prompt) :] = 1
        self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=max(request.max_tokens for request in requests),
            stopping_criteria=[Clock(tick)],
            pad_token_id=0,
        )


def main() -> None:
    """Load and serve."""
    replies = open_replies()
    folder, threads, dtype, *experts = sys.argv[1:]
    torch.set_num_threads(int(threads))
    serve(replies, Static(folder, getattr(torch, dtype), *experts).answer)


if __name__ == "__main__":
    main()
