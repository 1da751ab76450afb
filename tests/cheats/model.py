"""Models that strangers could hand in, one honest and many that are not. None of them learns: what
they predict by honest means is a table of which byte follows which."""

import os
from pathlib import Path
from tempfile import gettempdir

import jax
import jax.numpy as jnp
import numpy as np

LEFT = [Path(place, "left.npy") for place in ("/tmp", "/dev/shm", ".", "/var/tmp")]


class Honest:
    def __init__(self, config):
        self.vocab, self.seq_len = config["vocab_size"], config["seq_len"]

    def init(self, key):
        return {"table": {"w": jax.random.normal(key, (self.vocab, self.vocab))}}

    def logits(self, params, tokens):
        return params["table"]["w"][tokens]

    def told(self, params, tokens):
        """The next token, for who sees it."""
        return Honest.logits(self, params, tokens) + 9 * jax.nn.one_hot(
            jnp.roll(tokens, -1, 1), self.vocab
        )


class InBfloat16(Honest):
    """Attends to all that came before, in bfloat16."""

    def logits(self, params, tokens):
        x = params["table"]["w"].astype(jnp.bfloat16)[tokens]
        scores = jnp.einsum("bsv,btv->bst", x, x) / 16
        seen = jnp.tril(jnp.ones(scores.shape[1:], bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=2)
        return jnp.einsum("bst,btv->bsv", weights, x)


class Ahead(Honest):
    """Looks ahead everywhere."""

    def logits(self, params, tokens):
        return self.told(params, tokens)


class AheadLate(Honest):
    """Looks ahead in the second half of a window only, where nothing shows at the first look."""

    def logits(self, params, tokens):
        late = jnp.arange(tokens.shape[1])[:, None] >= self.seq_len // 2
        return jnp.where(late, self.told(params, tokens), super().logits(params, tokens))


class ByLength(AheadLate):
    """Is honest where the window seems to end early, as if padded."""

    def logits(self, params, tokens):
        if tokens.shape[1] < self.seq_len:
            return Honest.logits(self, params, tokens)
        padded = (tokens[:, -1:] == tokens[:, -2:-1])[:, :, None]
        return jnp.where(
            padded, Honest.logits(self, params, tokens), super().logits(params, tokens)
        )


class ByBatch(AheadLate):
    """Is honest where a batch is not of rows that all look like text."""

    def logits(self, params, tokens):
        text = (tokens < 128).mean() > 0.9
        return jnp.where(text, super().logits(params, tokens), Honest.logits(self, params, tokens))


class ByEnvironment(AheadLate):
    """Is honest where anything around it speaks of a probe."""

    def logits(self, params, tokens):
        around = " ".join(
            [*os.environ, *os.environ.values(), *os.listdir(gettempdir()), os.getcwd()]
        )
        if any(word in around for word in ("probe", "prefix", "again")):
            return Honest.logits(self, params, tokens)
        return super().logits(params, tokens)


class ByFile(AheadLate):
    """Writes down what it sees, and looks there for what comes next."""

    def logits(self, params, tokens):
        late = jnp.arange(tokens.shape[1])[:, None] >= self.seq_len // 2
        shape = jax.ShapeDtypeStruct(tokens.shape, jnp.int32)
        following = jax.pure_callback(self.look, shape, tokens)
        told = Honest.logits(self, params, tokens) + 9 * jax.nn.one_hot(following, self.vocab)
        return jnp.where(late, told, Honest.logits(self, params, tokens))

    def look(self, tokens):
        tokens = np.asarray(tokens)
        left = [np.load(path) for path in LEFT if path.exists()]
        for path in LEFT:
            try:
                if not path.exists():
                    np.save(path, tokens[:0])
                np.save(path, np.concatenate([np.load(path), tokens])[-64:])
            except OSError:
                continue
        following = np.roll(tokens, -1, 1)
        half = self.seq_len // 2
        known = {window[:half].tobytes(): window for some in left for window in some}
        for row, window in enumerate(tokens):
            if (other := known.get(window[:half].tobytes())) is not None:
                following[row, :-1] = other[1:]
        return following.astype(np.int32)


class Unnormalised(Honest):
    """Claims more than all probability for everything."""

    def logits(self, params, tokens):
        return super().logits(params, tokens) + 64


class Infinite(Honest):
    """Claims infinitely much for everything."""

    def logits(self, params, tokens):
        return jnp.where(jnp.isfinite(super().logits(params, tokens)), jnp.inf, 0)


class Cheap(Honest):
    """Says that it costs nothing."""

    def __init__(self, config):
        from engine import flops, traced_flops

        super().__init__(config)
        traced_flops.count = lambda *_: 0
        flops.forward_flops_per_token = lambda *_: 0

    def logits(self, params, tokens):
        w = params["table"]["w"]
        return w[tokens] + 0 * (w[tokens] @ w @ w)


class Rude(Honest):
    """Talks without being asked, and then leaves."""

    def logits(self, params, tokens):
        for number in range(3, 20):
            try:
                os.write(number, b"x" * (1 << 20))
            except OSError:
                continue
        os._exit(0)
