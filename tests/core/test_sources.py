"""Where weights are looked for, and what is said when they are missing or damaged."""

import json
from pathlib import Path

import pytest

from sensorium.core.config import ModelsConfig
from sensorium.core.errors import BadCheckpoint, ModelNotFound
from sensorium.core.sources import RECORD, as_typed, check, describe_files, pins, resolve

NAME = "whisper-tiny.en"
BIG = 300_000


@pytest.fixture
def pulled(tmp_path: Path) -> Path:
    """Lay a model out as a pull leaves it; its files are zeros."""
    directory = tmp_path / NAME
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.bin").write_bytes(bytes(BIG))
    record = {"source": "test", "files": describe_files(directory)}
    (directory / RECORD).write_text(json.dumps(record))
    return directory


def test_defaults_are_pinned_with_a_fallback_each() -> None:
    defaults = ModelsConfig()
    for name, kind in (
        (defaults.decoder, "decoder"),
        (defaults.speech, "speech"),
        (defaults.vad, "vad"),
        ("whisper-base", "speech"),
    ):
        assert pins()[name].kind == kind
        assert len(pins()[name].sources) >= 2


def test_the_default_for_pictures_is_pinned() -> None:
    assert pins()[ModelsConfig().pictures].kind == "pictures"


def test_senses_that_are_left_out_are_no_models() -> None:
    roles = dict(ModelsConfig().by_role())
    assert list(roles) == ["decoder", "speech", "pictures", "vad"]
    assert roles["pictures"] == "efficientnet-lite0"
    assert list(dict(ModelsConfig(speech="", pictures="").by_role())) == ["decoder", "vad"]


def test_every_pinned_file_has_a_hash_and_a_plain_relative_name() -> None:
    for pin in pins().values():
        for source in pin.sources:
            assert all(url.startswith(("pypi:", "hf:")) for url in source.urls)
            for file in source.files:
                assert len(bytes.fromhex(file.sha256)) == 32
                assert not Path(file.name).is_absolute()
                assert ".." not in Path(file.name).parts


def test_pulled_model_is_found(tmp_path: Path, pulled: Path) -> None:
    assert resolve(NAME, tmp_path) == pulled


def test_missing_model_names_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"sensorium pull whisper-tiny\.en"):
        resolve(NAME, tmp_path)


def test_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve("gpt-9", tmp_path)
    assert all(name in str(caught.value) for name in pins())


def test_hub_name_not_pulled_yet_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="sensorium pull hf:a/b@main"):
        resolve("hf:a/b@main", tmp_path)


def test_own_directory_is_used_as_it_is(pulled: Path) -> None:
    (pulled / RECORD).unlink()
    assert resolve(str(pulled)) == pulled


def test_a_directory_may_be_typed_without_its_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("TINY").mkdir()
    assert as_typed("TINY") == "./TINY"
    assert as_typed("smollm2-135m-instruct") == "smollm2-135m-instruct"
    assert as_typed("./TINY") == "./TINY"
    assert as_typed("NOWHERE") == "NOWHERE"


def test_own_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        resolve(str(tmp_path))


@pytest.mark.parametrize("damage", ["cut", "gone", "header", "record"])
def test_damaged_model_is_refused_with_the_remedy(
    tmp_path: Path, pulled: Path, damage: str
) -> None:
    match damage:
        case "cut":
            (pulled / "model.bin").write_bytes(bytes(BIG - 1))
        case "gone":
            (pulled / "model.bin").unlink()
        case "header":
            (pulled / "model.bin").write_bytes(b"\x01" + bytes(BIG - 1))
        case _:
            (pulled / RECORD).write_text("{")
    with pytest.raises(BadCheckpoint, match=r"sensorium pull --force whisper-tiny\.en"):
        resolve(NAME, tmp_path)


def test_full_check_finds_one_wrong_byte_in_the_middle(tmp_path: Path, pulled: Path) -> None:
    content = bytearray(BIG)
    content[BIG // 2] = 1
    (pulled / "model.bin").write_bytes(content)
    check(NAME, tmp_path)
    with pytest.raises(BadCheckpoint, match="middle"):
        check(NAME, tmp_path, full=True)
