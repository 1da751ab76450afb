"""What an experiment's own code imports from the lab: the decoder and its parts, to subclass or to
replace, and how a step reads and writes texts that are larger than memory. This module keeps its
name; the modules that it re-exports from may move. A fingerprint covers only the names that are
imported from here and what these reach."""

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.documents import read_documents, write_documents
from engine.model.decoder import (
    Attention,
    Block,
    Decoder,
    Model,
    Params,
    RMSNorm,
    Sequences,
    SwiGLU,
    rms_norm,
    rotate,
    soft_cap,
)
from engine.model.parameters import gain, weights

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
    "read_documents",
    "rms_norm",
    "rotate",
    "soft_cap",
    "weights",
    "write_documents",
]
