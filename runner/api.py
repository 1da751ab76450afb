"""What an `experiment.py` imports from the lab to declare an experiment. This module keeps its
name. Own functions import from `engine.api`, which needs JAX."""

from engine.config.schema import ModelConfig, TrainConfig
from runner.spec.experiment import Declaration
from runner.spec.steps import Step

__all__ = ["Declaration", "ModelConfig", "Step", "TrainConfig"]
