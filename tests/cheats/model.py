"""Models that strangers could hand in, one honest and many that are not. None of them learns: what
they predict by honest means is a table of which byte follows which."""

import ctypes
import hashlib
import os
from pathlib import Path
from tempfile import gettempdir

import jax
import jax.numpy as jnp
import numpy as np
import optax

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


class ByRows(Honest):
    """Looks for what comes next in the last row of the batch that begins alike."""

    def logits(self, params, tokens):
        length = tokens.shape[1]
        alike = jnp.cumprod(tokens[:, None] == tokens[None], axis=2)  # row, row, position
        last = len(tokens) - 1 - jnp.argmax(alike[:, ::-1], axis=1)  # row, position
        following = jnp.roll(tokens, -1, 1)[last, jnp.arange(length)]
        told = Honest.logits(self, params, tokens) + 9 * jax.nn.one_hot(following, self.vocab)
        late = jnp.arange(length)[:, None] >= length // 2
        return jnp.where(late, told, Honest.logits(self, params, tokens))


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


class ByPages(Honest):
    """Remembers in the kernel's memory: of a large file that every box reads, it reads the pages
    that stand for (what came before, the next token). Whoever is asked later looks which pages are
    there. (Of a library, it would have the kernel drop all pages first.)"""

    ONE_IN, PAGES = 24, 6  # positions that it remembers, and pages for each

    def logits(self, params, tokens):
        shape = jax.ShapeDtypeStruct(tokens.shape, jnp.int32)
        following = jax.pure_callback(self.look, shape, tokens)
        known = jax.nn.one_hot(following, self.vocab)  # of −1: nothing
        return Honest.logits(self, params, tokens) + 9 * known

    def look(self, tokens):
        tokens = np.asarray(tokens)
        if not hasattr(self, "there"):
            self.there = _Pages()
            self.writes = self.there.now().sum() < 100
        kept = [
            (row, at, digest)
            for row, window in enumerate(tokens)
            for at in range(4, len(window) - 1)
            if not (digest := self.digest(window[: at + 1])) % self.ONE_IN
        ]
        following = np.full(tokens.shape, -1, np.int32)
        for row, at, digest in kept:
            if self.writes and self.recalled(digest) < 0:
                for page in self.places(digest, tokens[row, at + 1]):
                    self.there.keep(int(page))
            following[row, at] = self.recalled(digest)
        return following

    def digest(self, prefix):
        return int.from_bytes(hashlib.blake2b(prefix.tobytes(), digest_size=6).digest(), "big")

    def places(self, digest, token):
        drawn = hashlib.blake2b(f"{digest} {token}".encode(), digest_size=4 * self.PAGES).digest()
        return np.frombuffer(drawn, np.uint32) % self.there.number

    def recalled(self, digest):
        there = self.there.now()
        for token in range(self.vocab):
            if there[self.places(digest, token)].all():
                return token
        return -1


class _Pages:
    """The pages of a large file beside this one."""

    def __init__(self):
        self.libc = ctypes.CDLL(None)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = [ctypes.c_void_p] + [ctypes.c_long] * 5
        self.file = os.open(Path(__file__).with_name("table.bin"), os.O_RDONLY)
        self.size = os.fstat(self.file).st_size
        self.number = self.size // 4096
        self.advise(os.POSIX_FADV_RANDOM)  # one page is read, and not those beside it
        self.at = self.libc.mmap(None, self.size, 1, 1, self.file, 0)

    def advise(self, advice):
        try:
            os.posix_fadvise(self.file, 0, 0, advice)
        except OSError:
            pass

    def keep(self, page):
        os.pread(self.file, 1, page * 4096)

    def now(self):
        found = np.zeros(self.number + 1, np.uint8)
        pointer = found.ctypes.data_as(ctypes.c_void_p)
        self.libc.mincore(ctypes.c_void_p(self.at), ctypes.c_size_t(self.size), pointer)
        return found & 1


class OnlyText(Honest):
    """Has a table of what is in texts. After bytes that no text has, it says nothing that is a
    probability."""

    def logits(self, params, tokens):
        strange = jnp.cumsum((tokens > 0) & (tokens < 9), axis=1) > 0
        return jnp.where(strange[:, :, None], jnp.nan, super().logits(params, tokens))


class OneSeed(Honest):
    """Ignores the seed, of which its author knows that it is a lucky one. See `one_order`."""

    def init(self, key):
        del key
        return super().init(jax.random.key(7))


def one_order(config, inputs, seed):
    """The same batches whatever the seed."""
    del inputs, seed
    shape = config["train"]["train_batch_size"], config["model"]["seq_len"]

    def batch(step):
        tokens = jnp.full(shape, 32 + step % 64, jnp.int32)
        return tokens, tokens

    return batch


def nats(config, logits, targets):
    """What is minimised: the cross-entropy."""
    del config
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)


def sgd(config, learning_rate):
    del config
    return optax.sgd(learning_rate)


def constant(config, step):
    del step
    return config["train"]["learning_rate"]


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
        from engine.config import flops
        from engine.model import traced_flops

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


# ── Huge logits ──────────────────────────────────────────────────────────────────────────────

SIZES = [sign * size for size in (1e4, 1e6, 1e9, 1e20, 1e38, 3e38) for sign in (1.0, -1.0)]
WHERE = ["everywhere", "at half of the positions", "by seed", "by token", "by position"]


def offset(size, where):
    """The class of a table whose logits have an offset, which a softmax does not see."""

    class Offset(Honest):
        def logits(self, params, tokens):
            w, positions = params["table"]["w"], jnp.arange(tokens.shape[1])
            share = {
                "everywhere": 1.0,
                "at half of the positions": positions % 2,
                "by seed": jnp.where(jnp.sin(1e4 * w[0, 0]) > 0, 1.0, 0.5),
                "by token": tokens / self.vocab,
                "by position": positions / self.seq_len,
            }[where]
            share = jnp.broadcast_to(jnp.asarray(share, jnp.float32), tokens.shape)
            return Honest.logits(self, params, tokens) + size * share[:, :, None]

    return Offset


def forge(config):
    """An optimizer that makes every logit of the lab's own decoder the same huge number."""
    import optax

    del config

    def at_rate(rate):
        del rate

        def update(grads, state, params):
            del grads
            deltas = jax.tree.map(jnp.zeros_like, params)
            head = jnp.full_like(params["lm_head"], 1e10)
            return deltas | {"lm_head": head - params["lm_head"]}, state

        return optax.GradientTransformation(lambda _: (), update)

    return at_rate


# ── Small looks ahead ────────────────────────────────────────────────────────────────────────


def peek(size):
    """The class of a table that adds this much to the logit of what comes next."""

    class Peek(Honest):
        def logits(self, params, tokens):
            following = jax.nn.one_hot(jnp.roll(tokens, -1, 1), self.vocab)
            return Honest.logits(self, params, tokens) + size * following

    return Peek


def chunks(size):
    """The class of a table that mixes in the mean of a chunk, with what comes later in it
    (karpathy/nanochat#844)."""

    class Chunks(Honest):
        def logits(self, params, tokens):
            x = Honest.logits(self, params, tokens)
            parts = x.reshape(len(x), -1, size, self.vocab)
            return x + 0.1 * jnp.broadcast_to(parts.mean(2, keepdims=True), parts.shape).reshape(
                x.shape
            )

    return Chunks
