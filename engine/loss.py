"""The loss: cross-entropy in nats per token, float32 inside."""

import jax
import jax.numpy as jnp


def cross_entropy(logits_TV: jax.Array, targets_T: jax.Array) -> jax.Array:
    """Nats of each target under softmax(logits). Returns T, float32."""
    logits_TV = logits_TV.astype(jnp.float32)
    chosen_T = jnp.take_along_axis(logits_TV, targets_T[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(logits_TV, axis=1) - chosen_T
