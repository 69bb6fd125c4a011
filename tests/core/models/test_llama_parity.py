"""The default decoder says what transformers says, alone and in company. Needs `sensorium pull`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import append, generate, ids_of, open_sequence, run
from tokenizers import Tokenizer

from sensorium.core.api import CloseSequence, SequenceId
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.engine import Engine
from sensorium.core.runner import load_runner
from sensorium.core.sources import resolve

NUM_TOKENS = 16

QUESTIONS = (
    "What is the capital of France?",
    "Name three primary colours.",
    "How many legs does a spider have?",
    "Write one sentence about the sea.",
    "What is 12 plus 30?",
    "Who wrote Hamlet?",
    "Give me a synonym for happy.",
    "What do bees make?",
    "Translate 'good morning' into Spanish.",
    "Why is the sky blue?",
    "List two uses of a hammer.",
    "What language is spoken in Brazil?",
    "Explain gravity to a child.",
    "What is the boiling point of water?",
    "Is a tomato a fruit?",
    "Tell me a short joke.",
    "Which planet is closest to the sun?",
    "def fibonacci(n):",
    "Reply with an emoji 🙂 please",
    "Summarise: the cat sat on the mat, and then it slept until noon.",
)


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve(ModelsConfig().decoder)


@pytest.fixture(scope="module")
def prompts(folder: Path) -> list[tuple[int, ...]]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    turn = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    texts = [turn.format(question) for question in QUESTIONS]
    return [tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    num_threads = torch.get_num_threads()
    config = EngineConfig(threads=1, cache_mib=512)
    yield Engine(load_runner(folder, ModelsConfig(dtype="float32"), config), config)
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def oracle(folder: Path, engine: Engine) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32)


@pytest.fixture(scope="module")
def answers(engine: Engine, prompts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """What our engine says to each question when it answers one at a time."""
    return [answer for i in range(len(prompts)) for answer in _answer(engine, prompts, [i])]


def _answer(
    engine: Engine, prompts: list[tuple[int, ...]], group: Iterable[int]
) -> list[tuple[int, ...]]:
    for i in group:
        sequence_id = open_sequence(engine, i)
        append(engine, sequence_id, 1, prompts[i])
        generate(engine, sequence_id, 2, NUM_TOKENS)
    events = run(engine)
    for i in group:
        engine.submit(CloseSequence(sequence_id=SequenceId(i)))
    return [ids_of(events, i) for i in group]


def test_greedy_text_equals_transformers(
    oracle: Any, prompts: list[tuple[int, ...]], answers: list[tuple[int, ...]]
) -> None:
    # If every id is the oracle's best choice after the ids before it, the oracle says the same.
    for question, ids, answer in zip(QUESTIONS, prompts, answers, strict=True):
        with torch.inference_mode():
            logits = oracle(torch.tensor([ids + answer])).logits[0]
        choices = logits[len(ids) - 1 : -1].argmax(-1).tolist()
        assert tuple(choices) == answer, question
        assert len(answer) == NUM_TOKENS


def test_eight_at_once_say_what_each_says_alone(
    engine: Engine, prompts: list[tuple[int, ...]], answers: list[tuple[int, ...]]
) -> None:
    for begin in range(0, len(prompts), 8):
        group = range(begin, min(begin + 8, len(prompts)))
        assert _answer(engine, prompts, group) == answers[begin : begin + 8]
