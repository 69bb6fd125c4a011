"""vLLM's CPU build as a contestant: vllm_engine.py FOLDER THREADS DTYPE. Runs in its environment.

The offline engine in this process, stepped by hand: no HTTP, no tokenizer, no prefix cache (the
bench's prompts must be computed), else its defaults, compiled model included.
"""

import os
import sys

from pipe import Request, Stamps, generate, open_replies, serve


class Vllm:
    """`pipe.Engine` over an LLMEngine."""

    def __init__(self, folder: str, dtype: str) -> None:
        """Load and compile; about a minute."""
        from vllm import LLM, SamplingParams  # after the environment is set

        self._sampling = SamplingParams
        self._engine = LLM(
            model=folder,
            dtype=dtype,
            skip_tokenizer_init=True,
            enable_prefix_caching=False,
            max_model_len=2048,
            max_num_seqs=16,
        ).llm_engine
        self._num_tokens: dict[int, int] = {}

    def submit(self, index: int, request: Request) -> None:
        """Add a request of token ids."""
        sampling = self._sampling(
            temperature=0.0, max_tokens=request.max_tokens, ignore_eos=True, detokenize=False
        )
        self._num_tokens[index] = 0
        self._engine.add_request(str(index), {"prompt_token_ids": request.prompt}, sampling)

    def step(self) -> list[tuple[int, int]]:
        """Step once; outputs hold all tokens so far."""
        tokens = []
        for output in self._engine.step():
            index, count = int(output.request_id), len(output.outputs[0].token_ids)
            tokens.append((index, count - self._num_tokens[index]))
            self._num_tokens[index] = count
        return tokens


def main() -> None:
    """Load and serve."""
    replies = open_replies()
    folder, threads, dtype = sys.argv[1:]
    cores = sorted(os.sched_getaffinity(0))[: int(threads)]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    engine = Vllm(folder, dtype)

    def answer(requests: list[Request], batch: int) -> Stamps:
        return generate(engine, requests)

    serve(replies, answer)


if __name__ == "__main__":
    main()
