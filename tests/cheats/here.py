"""Asks a model's program in this process."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from engine.model.decoder import Model
from engine.training.digest import path_of
from runner.worker.models import look_ahead_probe, programs
from runner.worker.models.trained import Planned

T = TypeVar("T")


class Here:
    """Asks a model's program in this process: quick, and nothing is isolated."""

    models: Mapping[str, Planned] = {}
    exact = True

    def __init__(self, model: Model, params: Any) -> None:
        self.made, self.params = model, params
        self.logits_of: Callable[[np.ndarray], Any]

    def export(self, _: Planned, rows: int) -> look_ahead_probe.Program:
        try:
            return look_ahead_probe.Program(programs.exported(self.made, rows), "", 1, "")
        except programs.NotExported as error:
            return look_ahead_probe.Program(b"", str(error), None, "")

    def talk(
        self, model: Planned, _: Path, rows: int, program: bytes, about: Callable[[Any], T]
    ) -> T:
        leaves = jax.tree_util.tree_leaves_with_path(self.params)
        named = {path_of(path): np.asarray(x) for path, x in leaves}
        config = model.config
        tokens = rows, config["seq_len"]
        self.logits_of = partial(self.made.logits, self.params)
        if program:
            self.logits_of = programs.loaded(program, named, tokens, config["vocab_size"])
        return about(self)

    def anew(self) -> None: ...

    def logits(self, tokens_BS: np.ndarray, positions_B: np.ndarray | None = None) -> np.ndarray:
        found = np.asarray(self.logits_of(tokens_BS))
        return found if positions_B is None else found[np.arange(len(found)), positions_B]
