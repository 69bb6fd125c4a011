"""llama.cpp as a contestant: llama_engine.py FILE.gguf THREADS. Runs in its environment.

Its C interface through the bindings, with its own continuous batching over sequence ids: a batch
holds the prompts that have arrived and the last token of every running sequence, as its server's
does; greedy choice by its own sampler.
"""

import sys

import llama_cpp as c
from pipe import Request, Stamps, generate, open_replies, serve

MAX_SEQUENCES, MAX_POSITIONS, MAX_BATCH = 16, 2048, 2048


class Llama:
    """`pipe.Engine` over a llama_context."""

    def __init__(self, file: str, threads: int) -> None:
        """Load the file."""
        c.llama_backend_init()
        self._model = c.llama_model_load_from_file(file.encode(), c.llama_model_default_params())
        params = c.llama_context_default_params()
        params.n_ctx = MAX_SEQUENCES * MAX_POSITIONS
        params.n_batch = MAX_BATCH
        params.n_seq_max = MAX_SEQUENCES
        params.n_threads = params.n_threads_batch = threads
        self._context = c.llama_init_from_model(self._model, params)
        self._greedy = c.llama_sampler_init_greedy()
        self._batch = c.llama_batch_init(MAX_BATCH, 0, 1)
        self._pending: dict[int, list[int]] = {}  # ids not yet computed, by sequence
        self._position: dict[int, int] = {}
        self._num_left: dict[int, int] = {}

    def submit(self, index: int, request: Request) -> None:
        """Queue the prompt."""
        self._pending[index] = list(request.prompt)
        self._position[index] = 0
        self._num_left[index] = request.max_tokens

    def step(self) -> list[tuple[int, int]]:
        """Decode one batch and choose the next token of every sequence that is through."""
        batch = self._batch
        batch.n_tokens = 0
        outputs: list[tuple[int, int]] = []  # (sequence, row of the batch)
        # running sequences first, so that prompts never displace them
        for index in sorted(self._pending, key=lambda index: len(self._pending[index])):
            pending = self._pending[index]
            taken = pending[: MAX_BATCH - batch.n_tokens]
            for token in taken:
                row = batch.n_tokens
                batch.token[row] = token
                batch.pos[row] = self._position[index]
                batch.n_seq_id[row] = 1
                batch.seq_id[row][0] = index
                batch.logits[row] = False
                batch.n_tokens += 1
                self._position[index] += 1
            del pending[: len(taken)]
            if taken and not pending:
                batch.logits[batch.n_tokens - 1] = True
                outputs.append((index, batch.n_tokens - 1))
        if code := c.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        for index, row in outputs:
            token = c.llama_sampler_sample(self._greedy, self._context, row)
            self._pending[index] = [token]
            self._num_left[index] -= 1
            if not self._num_left[index]:
                del self._pending[index]
                c.llama_memory_seq_rm(c.llama_get_memory(self._context), index, -1, -1)
        return [(index, 1) for index, _ in outputs]


def main() -> None:
    """Load and serve."""
    replies = open_replies()
    engine = Llama(sys.argv[1], int(sys.argv[2]))

    def answer(requests: list[Request], batch: int) -> Stamps:
        return generate(engine, requests)

    serve(replies, answer)


if __name__ == "__main__":
    main()
