"""The reference encoder, its sharing schemes, and its files. Needs torch."""

from exporter.models.config import EncoderConfig
from exporter.models.early_exit import EarlyExit
from exporter.models.encoder import SharedEncoder
from exporter.models.parameters import ParameterCount, count_parameters
from exporter.models.saving import save_checkpoint, save_folder
from exporter.models.sharing import SharingScheme

__all__ = [
    "EarlyExit",
    "EncoderConfig",
    "ParameterCount",
    "SharedEncoder",
    "SharingScheme",
    "count_parameters",
    "save_checkpoint",
    "save_folder",
]
