"""How XLA compiles in the tests of the engine, whose programs run only a few times: without LLVM's
optimizations, and without the fusion emitters, which take half of the time to compile."""

import os

FLAGS = ("--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false")


def in_environment(*more: str) -> dict[str, str]:
    """This process's environment, with these flags and `more` of them."""
    return os.environ | {"XLA_FLAGS": " ".join((*FLAGS, *more))}
