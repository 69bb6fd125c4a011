"""Text to token ids and back, for byte-level BPE vocabularies (a checkpoint's `tokenizer.json`).

What a user wrote never becomes a control token, and no half character comes out.
"""

import codecs
import json
import re
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from sensorium.core.errors import BadCheckpoint


class Tokenizer:
    """The vocabulary of one checkpoint. Immutable, and safe to share between threads."""

    def __init__(self, model_dir: Path) -> None:
        """Read `tokenizer.json`; raises BadCheckpoint if it is missing or of another kind."""
        path = Path(model_dir) / "tokenizer.json"
        try:
            content = json.loads(path.read_bytes())
            added = content["added_tokens"]
            # Without its added tokens the vocabulary spells control strings out like any others.
            self._plain = tokenizers.Tokenizer.from_str(json.dumps({**content, "added_tokens": []}))
            vocabulary = self._plain.get_vocab(with_added_tokens=False)
            spelled = {i: bytes(map(_BYTE_OF.__getitem__, t)) for t, i in vocabulary.items()}
        except OSError as error:
            raise BadCheckpoint(f"{path} can't be read: {error}") from error
        except KeyError as error:
            raise BadCheckpoint(f"{path} has no byte-level vocabulary: {error}") from error
        except Exception as error:  # tokenizers raises bare Exception for what it can't parse
            raise BadCheckpoint(f"{path} is no tokenizer file: {error}") from error
        self._control = {token["content"]: int(token["id"]) for token in added}
        self._names = {token_id: name.encode() for name, token_id in self._control.items()}
        longest_first = sorted(filter(None, self._control), key=len, reverse=True)
        self._prefixes = {name[:n] for name in longest_first for n in range(1, len(name))}
        self._suffixes = {name[n:] for name in longest_first for n in range(1, len(name))}
        self._markup = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        for token in added:
            spelled[token["id"]] = b"" if token["special"] else token["content"].encode()
        self.vocab_size = max(spelled) + 1
        self._bytes = [spelled.get(token_id, b"") for token_id in range(self.vocab_size)]

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, all of it taken literally: `<|im_end|>` is ten characters.

        Surrogates without their partner, which no UTF-8 has, become question marks.
        """
        well_formed = text.encode("utf-8", "replace").decode("utf-8")
        ids: list[int] = self._plain.encode(well_formed, add_special_tokens=False).ids
        return ids

    def encode_markup(self, markup: str, *, erase: str = "") -> list[int]:
        """Return the ids of what a template wrote: control strings in it are control tokens.

        `erase`, where it stands, parts a control string that isn't meant; it is left out.
        """
        ids: list[int] = []
        for place, piece in enumerate(self._markup.split(markup)):
            if place % 2:
                ids.append(self._control[piece])
            else:
                ids += self.encode(piece.replace(erase, "") if erase else piece)
        return ids

    def disarm(self, text: str, mark: str) -> str:
        """Return `text` with `mark` in each control string, and where it might be half of one.

        Put beside any other text it makes no control token, and `encode_markup` can erase the mark.
        """
        while self._markup.search(text):
            text = self._markup.sub(lambda name: name[0][:1] + mark + name[0][1:], text)
        lengths = range(1, 1 + max(map(len, self._prefixes), default=0))
        begins = any(text[:n] in self._suffixes for n in lengths)
        ends = any(text[-n:] in self._prefixes for n in lengths)
        return (mark if begins else "") + text + (mark if ends else "")

    def control(self, token: str) -> int:
        """Return the id of a control token; raises BadCheckpoint if there is none of this name."""
        try:
            return self._control[token]
        except KeyError:
            raise BadCheckpoint(f"the tokenizer has no control token {token!r}") from None

    def has_control(self, token: str) -> bool:
        """Tell whether the vocabulary has a control token of this name."""
        return token in self._control

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for: empty for control tokens and unknown ids."""
        return self._bytes[token_id] if 0 <= token_id < self.vocab_size else b""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` without control tokens; what is no UTF-8 becomes U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def spell(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` with the names of control tokens, as a template writes it."""
        pieces = (self._names.get(token_id) or self.token_bytes(token_id) for token_id in ids)
        return b"".join(pieces).decode("utf-8", "replace")


class Detokenizer:
    """Turns ids into text as they come; the pieces joined are `Tokenizer.decode` of all ids.

    A piece never ends inside a UTF-8 character or inside an emoji that may still grow (skin tone,
    joined family, flag): those wait for the next id, or for `finish`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, ids: Sequence[int]) -> str:
        """Return the text that is complete now; may be empty."""
        text = self._held + self._utf8.decode(b"".join(map(self._tokenizer.token_bytes, ids)))
        end = len(text)
        for emoji in _EMOJI.finditer(text):
            if emoji.end() == len(text) and emoji.end() - emoji.start() < _MAX_EMOJI:
                end = emoji.start()
        self._held = text[end:]
        return text[:end]

    def finish(self) -> str:
        """Return what was held back; an unfinished character becomes U+FFFD."""
        text = self._held + self._utf8.decode(b"", final=True)
        self._held = ""
        return text


def _gpt2_alphabet() -> dict[str, int]:
    """Return the printable character that GPT-2's byte-level BPE writes for each byte, inverted.

    Bytes that are printable in Latin-1 stand for themselves, the others for U+0100 and up, in order
    (openai/gpt-2, src/encoder.py: bytes_to_unicode).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return alphabet


_BYTE_OF = _gpt2_alphabet()

_MAX_EMOJI = 32
_FLAG = "[\U0001f1e6-\U0001f1ff]"
_PICTURE = "[\u203c\u2049\u2190-\u21ff\u2300-\u27bf\u2934\u2935\u2b00-\u2bff\U0001f000-\U0001faff]"
_GROWTH = "[\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
# Emoji sequences (Unicode Technical Standard 51, ED-17), coarse: enough to know where to wait.
_EMOJI = re.compile(f"{_FLAG}{_FLAG}?|{_PICTURE}{_GROWTH}*(?:\u200d(?:{_PICTURE}{_GROWTH}*)?)*")
