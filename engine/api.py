"""What an experiment's own code imports from the lab: the decoder and its parts, to subclass or to
put others in their place. This module stays where it is, while those that it takes them from may
move; a fingerprint covers what is imported here and what that reaches, and none of the rest."""

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
