"""`sensorium encode` from its arguments to its exit status, and on through `sensorium forward`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from media_files import noise, picture_file, sound_file, video_file, wav
from muse_checkpoint import cached_tiny_muse
from muse_oracle import Clip, Offline, Picture, Video, clip, picture, sound_of, video
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from sensorium.gateway.__main__ import main

PCM = (np.random.default_rng(2).normal(0, 4000, 16_100)).astype("<i2").tobytes()
FRAMES = [noise(60, 90, seed=i) for i in range(16)]
SOUND = clip(PCM).samples
FILM = video_file(
    "matroska", "libx264", FRAMES, sound=SOUND, sound_hz=24_000, sound_codec="pcm_s16le"
)
STILL = picture_file(Image.fromarray(noise(100, 150, seed=3)), "PNG")


@pytest.fixture(scope="module")
def offline() -> Offline:
    return Offline(cached_tiny_muse())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: a model in `tiny`, and files of all kinds."""
    (tmp_path / "tiny").symlink_to(cached_tiny_muse())
    (tmp_path / "a.wav").write_bytes(wav(PCM, rate_hz=24_000))
    (tmp_path / "a.png").write_bytes(STILL)
    (tmp_path / "a.mkv").write_bytes(FILM)
    (tmp_path / "a.txt").write_text("These are words.\n" * 9)
    (tmp_path / "sensorium.toml").write_text("[engine]\nthreads = 1\nblock_size = 4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def encode(modality: str, file: str, *options: str) -> dict[str, Tensor]:
    arguments = [modality, file, "--model", "tiny", "--out", "rows.safetensors", *options]
    assert main(["encode", *arguments]) == 0
    return load_file("rows.safetensors")


def media_of(file: str) -> list[Picture | Video | Clip]:
    """What transformers is given of a file."""
    match file:
        case "a.wav":
            return [clip(PCM)]
        case "a.png":
            return [picture(STILL)]
        case _:
            return [video(FILM), sound_of(FILM)]


FILES = [("audio", "a.wav"), ("image", "a.png"), ("video", "a.mkv")]


@pytest.mark.parametrize(("modality", "file"), FILES)
def test_rows_are_transformers_and_so_are_logits_of_them(
    folder: Path, offline: Offline, modality: str, file: str
) -> None:
    made = encode(modality, file)
    media = media_of(file)
    ids = [token_id for content in media for token_id in offline.slots(content)]
    assert made["input_ids"].tolist() == ids
    rows = torch.cat([offline.rows(content) for content in media])
    torch.testing.assert_close(made["rows"], rows, atol=2e-5, rtol=0)
    options = ["--dtype", "float32", "--weights", "same"]
    forward = ["forward", "--model", "tiny", "rows.safetensors", "out.safetensors", *options]
    assert main(forward) == 0
    logits = load_file("out.safetensors")["logits"]
    torch.testing.assert_close(logits, offline.logits(ids, media), atol=1e-3, rtol=0)


@pytest.mark.parametrize(("modality", "file"), FILES)
def test_chunks_give_the_rows_of_the_whole(folder: Path, modality: str, file: str) -> None:
    whole, fed = encode(modality, file), encode(modality, file, "--chunk-ms", "33")
    torch.testing.assert_close(fed.pop("rows"), whole.pop("rows"), atol=1e-5, rtol=0)
    assert fed.keys() == whole.keys()
    assert all(torch.equal(fed[name], whole[name]) for name in whole)


def test_sound_at_another_rate_has_the_same_length(folder: Path) -> None:
    samples = np.zeros(16_000, np.float32)
    (folder / "a.ogg").write_bytes(sound_file("ogg", "libopus", 48_000, samples=samples))
    made = encode("audio", "a.ogg")
    assert len(made["rows"]) == -(-16_000 // (48 * 80))


def test_detail_bounds_the_cells(folder: Path) -> None:
    big = picture_file(Image.fromarray(noise(300, 300)), "PNG")
    (folder / "big.png").write_bytes(big)
    assert len(encode("image", "big.png", "--detail", "low")["rows"]) == 64  # this model's cap


def test_what_was_done_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode("video", "a.mkv")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [
        *("input_ids", "rows", "row_positions", "start_s", "end_s")
    ]
    assert lines[-1].startswith("✓ muse-video, muse-spark-audio: ")
    assert lines[-1].endswith(" bytes in rows.safetensors")
    with safe_open("rows.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["model"] == "./tiny"
    assert metadata["encoder"] == "muse-video, muse-spark-audio"


def test_bfloat16_is_near(folder: Path) -> None:
    whole, rough = encode("audio", "a.wav"), encode("audio", "a.wav", "--dtype", "bfloat16")
    assert rough["rows"].dtype == torch.float32
    worst = float((rough["rows"] - whole["rows"]).abs().max())
    assert 1e-4 < worst < 0.3


def test_words_are_ids_without_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default model's eyes say what they see, and `forward` takes that too."""
    leopard = Path(__file__).parents[2] / "data" / "leopard.jpg"
    arguments = ["encode", "image", str(leopard), "--out", "words.safetensors"]
    assert main(arguments) == 0
    made = load_file("words.safetensors")
    assert list(made) == ["input_ids"]
    assert len(made["input_ids"]) > 3
    assert "leopard" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["image", "a.txt"], "✗ The file is none of jpeg, png,"),
        (["audio", "a.txt"], "✗ The file can't be decoded"),
        (["video", "a.png"], "✗ The file "),
        (["audio", "none.wav"], "✗ none.wav can't be read: No such file or directory"),
        (["image", "a.png", "--model", "./none"], "✗ none is not a directory"),
        (["image", "a.png", "--out", "none/rows"], "✗ none/rows can't be written"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    defaults = ["--model", "tiny", "--out", "rows.safetensors"]
    assert main(["encode", *arguments[:2], *defaults, *arguments[2:]]) == 1
    error = capsys.readouterr().err
    assert error.startswith(sentence)
    assert error.count("\n") == 1
    assert not Path("rows.safetensors").exists()


def test_modality_that_a_model_lacks_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "deaf.toml").write_text('[models]\nspeech = ""\npictures = ""\n')
    arguments = ["a.png", "--config", "deaf.toml", "--out", "rows.safetensors"]
    assert main(["encode", "image", *arguments]) == 1
    error = capsys.readouterr().err
    assert "has no encoder for image; it can encode nothing" in error


def test_chunks_must_be_milliseconds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["encode", "audio", "a.wav", "--out", "rows", "--chunk-ms", "0"])
    assert "--chunk-ms" in capsys.readouterr().err
