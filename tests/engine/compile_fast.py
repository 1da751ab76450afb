"""How XLA compiles programs of tests, which run only a few times: without most optimizations, and
without the fusion emitters, which take half of the time to compile."""

import os

FLAGS = ("--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false")
ENVIRONMENT = {"XLA_FLAGS": " ".join(FLAGS), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def in_environment(*more: str) -> dict[str, str]:
    """This process's environment, with these flags and `more` of XLA's."""
    return os.environ | ENVIRONMENT | {"XLA_FLAGS": " ".join((*FLAGS, *more))}
