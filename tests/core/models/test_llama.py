import pytest
import torch
from tiny_model import CONFIG, tiny_model

from sensorium.core.models.llama import Llama
from sensorium.core.models.llama_config import LlamaConfig


def test_theta_is_found_where_old_and_new_configs_keep_it() -> None:
    new = {k: v for k, v in CONFIG.items() if k != "rope_theta"}
    new["rope_parameters"] = {"rope_type": "default", "rope_theta": 5e5}
    assert LlamaConfig.from_json(new).rope_theta == 5e5
    assert LlamaConfig.from_json(CONFIG).rope_theta == 1e4


def test_head_width_and_kv_heads_have_their_usual_defaults() -> None:
    config = {**CONFIG, "num_attention_heads": 4, "num_key_value_heads": None, "head_dim": None}
    shape = LlamaConfig.from_json(config).shape
    assert (shape.num_kv_heads, shape.head_dim) == (4, 8)


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_has_a_name_in_the_checkpoint(tied: bool) -> None:
    model = Llama(CONFIG | {"tie_word_embeddings": tied})
    assert {name for name, _ in model.named_parameters()} == set(model.weight_names())
    source = "model.embed_tokens.weight" if tied else "lm_head.weight"
    assert model.weight_names()["head.weight"] == (source,)


def test_embedding_looks_rows_up() -> None:
    model = tiny_model()
    assert torch.equal(model.embed(torch.tensor([5, 2])), model.embedding[[5, 2]])
