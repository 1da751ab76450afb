"""One side on one GPU, in a process of its own: `gpu.py` starts it with a job as JSON and reads the
last line that it prints. Those that are timed train the same shape with AdamW on tokens of the same
distribution: bf16 products and residual stream, float32 masters, moments and sums of gradients.

- engine: `engine.training.train`, as everybody calls it, its data thread included
- flash, cudnn: `torch_model.py` under `torch.compile` and autocast, with fused AdamW, and with
  FlashAttention or cuDNN's attention and no other
- levanter: its Trainer and Llama without remat, with the attention that it takes by itself
- experts: the engine with 64 experts of which a token uses 8, as wide together as the MLP
- resume: the engine, killed and continued, against itself undisturbed
- generation, transformers: 128 tokens after each of eight prompts, greedy

PyTorch and Levanter find their batches on the device. Nobody waits for a step's loss before the
next step is dispatched, but Levanter, whose Trainer is made so."""

import itertools
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from engine.config import flops
from engine.config.schema import ComputeConfig, ModelConfig, TrainConfig

SHAPES: dict[str, dict[str, Any]] = {
    "130m": {"size": "130m"},
    "350m": {"hidden_dim": 1024, "intermediate_dim": 2816, "num_layers": 20, "num_heads": 16},
    "1.4b": {"hidden_dim": 2048, "intermediate_dim": 7168, "num_layers": 20, "num_heads": 16},
    "smoke": {"depth": 1},
}
WIDTHS = {"hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads"}
MOST_UNROLLED = 16  # layers
LAST = 10  # steps whose mean loss is reported
MEMORY = ("out of memory", "outofmemory", "resource_exhausted", "memory is out")
Run = Iterator[float]  # the losses of steps 1, 2, …, without an end
Facts = dict[str, Any]  # what else a contender has to report


class Job:
    """`tokens` a step, worked through in `parts`; the first `skip` of `steps` are not timed."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.side, self.cache, self.tokens = job["side"], job["cache"], job["tokens"]
        self.steps, self.skip = job["steps"], job["skip"]
        shape = SHAPES[job["size"]]
        if job["side"] == "experts":
            wide = ModelConfig(seq_len=1, **shape).intermediate_dim
            shape = ModelConfig(seq_len=1, **shape).model_dump(
                include=WIDTHS - {"intermediate_dim"}
            )
            shape["moe"] = {"num_experts": 64, "top_k": 8, "expert_dim": wide // 8}
        self.model = ModelConfig(seq_len=job["seq_len"], vocab_size=job["vocab_size"], **shape)
        self.train = TrainConfig(
            train_batch_size=self.tokens // job["seq_len"],
            gradient_accumulation_steps=job["parts"],
            num_train_steps=10_000,  # a whole run, of which this is the beginning
            learning_rate=6e-4,
            warmup=20,
        )

    def stream(self) -> np.ndarray:
        """Tokens by Zipf's law, so that there is something to learn and losses tell something."""
        p = 1 / (np.arange(self.model.vocab_size) + 10)
        count = self.steps * self.tokens + 1
        return np.random.default_rng(0).choice(len(p), count, p=p / p.sum())

    def batches(self, first: int) -> np.ndarray:
        """(steps, B, S), of inputs (`first` 0) or targets (1)."""
        tokens = self.stream()[first : first + self.steps * self.tokens]
        return tokens.reshape(self.steps, -1, self.model.seq_len)


def engine(job: Job, facts: Facts) -> Run:
    import jax

    from engine.data.sampling import Sampler
    from engine.data.token_store import TokenStore
    from engine.model import attention
    from engine.model.decoder import Decoder
    from engine.training.train import train

    jax.config.update("jax_compilation_cache_dir", job.cache)
    few = job.model.num_layers <= MOST_UNROLLED
    decoder = Decoder(job.model, ComputeConfig(layers="unroll" if few else "scan"))
    path, why_not = attention.fast_path(
        jax.default_backend(), decoder.dtype, job.model.head_dim, segmented=False
    )
    facts["attention"] = why_not or path.__name__
    store = TokenStore.of(job.stream(), vocab_size=job.model.vocab_size, bytes_per_token=1.0)
    sampler = Sampler(store, 0, job.train.train_batch_size, job.model.seq_len)
    with tempfile.TemporaryDirectory() as folder:
        run = train(decoder, job.train, sampler, seed=0, checkpoints=Path(folder))
        with closing(run):  # type: ignore[type-var]
            for metrics in run:
                facts.setdefault("compile_seconds", metrics.compile_seconds)
                facts["peak_bytes"] = jax_peak()
                yield metrics.loss


def jax_peak() -> int:
    import jax

    on_device = jax.local_devices()[0].memory_stats() or {}
    return on_device.get("peak_bytes_in_use", process_peak())


def process_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def pytorch(job: Job, facts: Facts) -> Run:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from tests.bench import torch_model

    cuda, parts = torch.cuda.is_available(), job.train.gradient_accumulation_steps
    device = "cuda" if cuda else "cpu"
    torch.manual_seed(0)
    decoder = torch_model.Decoder(job.model).to(device)
    if cuda:  # all that is added to the residual stream is then bf16 too
        decoder.embedding.register_forward_hook(lambda *seen: seen[-1].bfloat16())
    loss, optimizer = torch.compile(decoder), torch_model.adamw(decoder, job.train)
    data = [torch.from_numpy(job.batches(first)).to(device) for first in (0, 1)]

    def step(number: int) -> torch.Tensor:
        for group in optimizer.param_groups:
            group["lr"] = torch_model.learning_rate(job.train, number)
        total = torch.zeros((), device=device)
        batch = (x_NBS[(number - 1) % job.steps].chunk(parts) for x_NBS in data)
        for part in zip(*batch, strict=True):
            with torch.autocast(device, torch.bfloat16, enabled=cuda):
                value = loss(*part) / parts
            value.backward()
            total += value.detach()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), job.train.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    backend = SDPBackend.CUDNN_ATTENTION if job.side == "cudnn" else SDPBackend.FLASH_ATTENTION
    facts["attention"] = backend.name.lower()
    with sdpa_kernel(backend):
        began = time.monotonic()
        unread = step(1)
        unread.item()
        facts["compile_seconds"] = time.monotonic() - began
        for number in itertools.count(2):
            found = step(number)
            facts["peak_bytes"] = torch.cuda.max_memory_allocated() if cuda else process_peak()
            yield unread.item()
            unread = found


def levanter(job: Job, facts: Facts) -> Run:
    import haliax as hax
    import jax
    import jmp
    import levanter
    from levanter.distributed import DistributedConfig
    from levanter.layers.attention import AttentionMask
    from levanter.models.llama import LlamaConfig
    from levanter.models.lm_model import LmExample
    from levanter.optim import AdamConfig
    from levanter.tracker import NoopConfig
    from levanter.trainer import Trainer, TrainerConfig

    fused = find_spec("transformer_engine") is not None
    facts["attention"] = "transformer engine" if fused else "jax_flash: no transformer engine"
    B, parts = job.train.train_batch_size, job.train.gradient_accumulation_steps
    config = TrainerConfig(
        mp=jmp.get_policy("p=f32,c=bfloat16"),
        tracker=NoopConfig(),
        log_dir=Path(job.cache) / "logs",
        log_jaxprs=False,
        log_xla_hlo=False,
        train_batch_size=B,
        per_device_parallelism=-1 if parts == 1 else B // parts,
        num_train_steps=job.train.num_train_steps,
        jax_compilation_cache_dir=job.cache,
        distributed=DistributedConfig(initialize_jax_distributed=False),
        require_accelerator=False,
    )
    llama = LlamaConfig(
        max_seq_len=job.model.seq_len,
        gradient_checkpointing=False,
        scan_layers=job.model.num_layers > MOST_UNROLLED,
        **job.model.model_dump(include=WIDTHS),
    )
    rate, warmup = job.train.learning_rate, job.train.warmup
    adam = AdamConfig(rate, warmup=warmup, lr_schedule="linear", min_lr_ratio=0.0)  # else the same
    levanter.initialize(config)
    axes, vocabulary = (
        (hax.Axis("batch", B), llama.max_Pos),
        hax.Axis("vocab", job.model.vocab_size),
    )
    weight, mask, key = hax.ones(axes), AttentionMask.causal(), jax.random.PRNGKey(0)
    tokens = [hax.named(jax.device_put(x.astype(np.int32)), axes) for x in job.batches(0)]
    examples = itertools.cycle([LmExample(x, weight, mask) for x in tokens])

    def loss(model: Any, example: Any, *, key: Any = None) -> Any:
        return model.compute_next_token_loss(example, key=key)

    optimizer = adam.build(job.train.num_train_steps)
    with Trainer(config, optimizer, loss, add_default_hooks=False) as trainer:
        state = trainer.initial_state(key, model_init=lambda: llama.build(vocabulary, key=key))
        for info in trainer.training_steps(state, examples):
            facts.setdefault("compile_seconds", info.step_duration)
            facts["peak_bytes"] = jax_peak()
            yield float(info.loss)


# ── What is not training speed ───────────────────────────────────────────────────────────────

PROMPTS, PROMPT, MADE = 8, 64, 128


def resume(job: Job) -> Facts:
    """Whether a run that was killed and continued ends with the bytes of one that was not."""
    from engine.training import checkpoint
    from engine.training.digest import tree_sha256

    steps = {"num_train_steps": 12, "checkpoint_every": 4, "train_batch_size": 8}
    config = job.train.model_copy(update={**steps, "warmup": 2})
    script = Path(__file__).parents[1] / "engine" / "one_run.py"
    with tempfile.TemporaryDirectory() as place:
        text, ends = Path(place, "tokens"), []
        np.random.default_rng(0).integers(0, 256, 50_000).astype(np.uint8).tofile(text)
        told = job.model.model_dump_json(), config.model_dump_json(), str(text)
        for name, deaths in (("whole", ()), ("killed", (("computing", "7"),))):
            folder = str(Path(place, name))
            for death in (*deaths, ()):
                command = [sys.executable, str(script), folder, *told, *death]
                done = subprocess.run(command, capture_output=True, timeout=300)
                if done.returncode != (-signal.SIGKILL if death else 0):
                    raise RuntimeError(
                        f"{name} ended with {done.returncode}: {done.stderr[-300:]!r}"
                    )
            reader = checkpoint.ocp.StandardCheckpointer()
            kept = Path(folder, "12")
            ends.append([tree_sha256(reader.restore(kept / of)) for of in ("params", "rest")])
            reader.close()
    return {"equal": ends[0] == ends[1], "digests": ends}


def generation(job: Job) -> Facts:
    """Tokens a second, by the engine or by transformers, after a first call."""
    import jax

    from engine.model.decoder import Decoder
    from engine.training.export import export

    model = job.model.model_copy(update={"seq_len": max(job.model.seq_len, PROMPT + MADE)})
    decoder = Decoder(model)
    params = jax.jit(decoder.init)(jax.random.key(0))
    shape = PROMPTS, PROMPT
    tokens_BP = np.random.default_rng(0).integers(0, model.vocab_size, shape).astype(np.int32)
    if job.side == "generation":
        from engine.model.generation import Prompt, Sampling, generate

        asked = [Prompt(row, 0, n) for n, row in enumerate(tokens_BP)]

        def made() -> Any:
            found = generate(decoder, params, asked, MADE, Sampling(temperature=0))
            return [len(one.tokens) for one in found]
    else:
        import torch
        from transformers import AutoModelForCausalLM

        cuda = torch.cuda.is_available()
        with tempfile.TemporaryDirectory() as folder:
            export(Path(folder, "model"), decoder, jax.device_get(params))
            loaded = AutoModelForCausalLM.from_pretrained(Path(folder, "model")).eval()
        loaded = loaded.to("cuda" if cuda else "cpu", torch.bfloat16 if cuda else torch.float32)
        ids = torch.from_numpy(tokens_BP).long().to(loaded.device)

        def made() -> Any:
            with torch.inference_mode():
                seen = torch.ones_like(ids)
                found = loaded.generate(
                    ids, attention_mask=seen, do_sample=False, max_new_tokens=MADE,
                    min_new_tokens=MADE,
                )  # fmt: skip
            return found[:, PROMPT:].cpu().numpy().shape

    made()
    began = time.monotonic()
    made()
    return {"generated_per_second": PROMPTS * MADE / (time.monotonic() - began)}


SIDES = {
    **{"engine": engine, "experts": engine, "flash": pytorch, "cudnn": pytorch},
    "levanter": levanter,
}
OTHERS = {"resume": resume, "generation": generation, "transformers": generation}
PACKAGES = {"flash": "torch", "cudnn": "torch", "levanter": "marin-levanter"}  # else jax


def run(job: Job) -> Facts:
    """Tokens a second from the end of step `skip` to the end of step `steps`, and the rest."""
    if job.side in OTHERS:
        return OTHERS[job.side](job)
    package = PACKAGES.get(job.side, "jax")
    half = job.model.model_copy(update={"seq_len": job.model.seq_len // 2})
    facts: Facts = {
        "version": f"{package} {version(package)}",
        "parameters": flops.parameters(job.model),
        "flops": flops.model_flops(job.model, 1),
        "causal_flops": flops.model_flops(half, 1),  # seq_len counts in attention only
    }
    losses, began = [], 0.0
    with closing(SIDES[job.side](job, facts)) as steps:  # type: ignore[type-var]
        for loss in itertools.islice(steps, job.steps):
            losses.append(loss)
            if len(losses) == job.skip:
                began = time.monotonic()
        seconds = time.monotonic() - began
    facts["tokens_per_second"] = (job.steps - job.skip) * job.tokens / seconds
    return {**facts, "loss": float(np.mean(losses[-LAST:]))}


if __name__ == "__main__":
    try:
        found = run(Job(json.loads(sys.argv[1])))
    except Exception as error:  # whatever a contender dies of is told in words
        words = f"{type(error).__name__}: {error}"
        found = {"failed": words[:500], "memory": any(word in words.lower() for word in MEMORY)}
    print("\n" + json.dumps(found), flush=True)
