"""Whisper's vocabulary: prompts made of token ids, and token ids taken apart into words."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

SECONDS_PER_TIMESTAMP = 0.02

_UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})


@dataclass(frozen=True, slots=True)
class WordTokens:
    """One word as the model wrote it: `text` with its leading space, the ids that make it up."""

    text: str
    ids: tuple[int, ...]

    @property
    def key(self) -> str:
        """The word as two passes compare it: lower case, letters and digits only."""
        return "".join(c for c in self.text.lower() if c.isalnum())

    @property
    def ends_sentence(self) -> bool:
        """Tell whether the word closes a sentence."""
        return self.text.rstrip("\"'”’)").endswith((".", "?", "!", "。", "？", "！"))


class WhisperVocabulary:
    """Special ids, prompts and words of one Whisper checkpoint (openai/whisper, tokenizer.py)."""

    def __init__(self, model_dir: Path) -> None:
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._bytes = {char: byte for byte, char in _byte_alphabet().items()}
        self.end_of_text = self._special("<|endoftext|>")
        self.start_of_transcript = self._special("<|startoftranscript|>")
        self.transcribe = self._special("<|transcribe|>")
        self.start_of_previous = self._special("<|startofprev|>")
        self.no_timestamps = self._special("<|notimestamps|>")
        self.first_timestamp = self.no_timestamps + 1

    def _special(self, token: str) -> int:
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise ValueError(f"tokenizer.json has no {token}: this is not a Whisper model")
        return int(token_id)

    def start_sequence(self, language: str | None) -> list[int]:
        """Return the ids that open a transcript; `language` None is a model that knows only one."""
        if language is None:
            return [self.start_of_transcript]
        return [self.start_of_transcript, self._special(f"<|{language}|>"), self.transcribe]

    def knows_language(self, language: str) -> bool:
        """Tell whether the vocabulary has a token for an ISO 639-1 code."""
        return self._tokenizer.token_to_id(f"<|{language}|>") is not None

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, ids: Iterable[int]) -> str:
        """Return the text of ids; control tokens and timestamps are left out."""
        return self._raw(ids).decode("utf-8", errors="replace")

    def _raw(self, ids: Iterable[int]) -> bytes:
        pieces = (self._tokenizer.id_to_token(i) for i in ids if i < self.end_of_text)
        return bytes(self._bytes[char] for piece in pieces if piece for char in piece)

    def words(self, ids: Sequence[int], language: str | None = None) -> list[WordTokens]:
        """Split ids into words; control tokens and timestamps are dropped.

        A word begins where a space does, or with every whole character in languages that write
        none. Punctuation stays with the word before it. Bytes that form no character are dropped.
        """
        unspaced = language in _UNSPACED_LANGUAGES
        words: list[WordTokens] = []
        start: list[int] = []
        for token_id in ids:
            if token_id >= self.end_of_text:
                continue
            start.append(token_id)
            try:
                text = self._raw(start).decode("utf-8")
            except UnicodeDecodeError:
                continue  # a character whose bytes span tokens
            begins = text.startswith(" ") or not words
            if unspaced:
                begins = begins or any(c.isalnum() for c in text)
            has_letters = any(c.isalnum() for c in text) or text.strip() in {
                "$",
                "£",
                "€",
                "¿",
                "¡",
            }
            if words and (not begins or not (has_letters or _opens(text))):
                last = words[-1]
                words[-1] = WordTokens(last.text + text, (*last.ids, *start))
            else:
                words.append(WordTokens(text, tuple(start)))
            start = []
        return words


def compression_ratio(text: str) -> float:
    """Return how far zlib shrinks a text; loops of the decoder exceed 2.4 (Radford et al., 4.5)."""
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0


def _opens(text: str) -> bool:
    return text.strip() in {'"', "“", "(", "[", "-", "‘", "'", "#", "+", "&"}


def _byte_alphabet() -> dict[int, str]:
    """Byte → printable character of GPT-2's byte-level vocabulary (openai/gpt-2, encoder.py)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
