"""From a name, a folder or a hub id to a network and its tokenizer, ready to be read."""

from helpers.models.find import DEFAULT, HUB_TIMEOUT, embedded_folder, in_cache
from helpers.models.load import Model, load_model

__all__ = ["DEFAULT", "HUB_TIMEOUT", "Model", "embedded_folder", "in_cache", "load_model"]
