"""What an experiment's own code imports from the lab: the decoder and its parts, to subclass or to
replace. This module keeps its name; the modules that it re-exports from may move. A fingerprint
covers only the names that are imported from here and what these reach."""

from engine.config.schema import ModelConfig, TrainConfig
from engine.model.decoder import (
    Attention,
    Block,
    Decoder,
    Model,
    Params,
    RMSNorm,
    Sequences,
    SwiGLU,
    gain,
    rms_norm,
    rotate,
    soft_cap,
    weights,
)

__all__ = [
    "Attention",
    "Block",
    "Decoder",
    "Model",
    "ModelConfig",
    "Params",
    "RMSNorm",
    "Sequences",
    "SwiGLU",
    "TrainConfig",
    "gain",
    "rms_norm",
    "rotate",
    "soft_cap",
    "weights",
]
