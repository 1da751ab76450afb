"""Declarations of entries: honest ones of each kind, and those that cheat, each with the check that
catches it before anything runs. They enter the track `tiny` (`tests.decided.one_track`)."""

HEAD = """\
title: An entry
resources: {kind: cpu}
speedrun: {track: tiny, author: {name: Ada}}
"""
ARMS = (
    HEAD
    + """\
data: {source: lab-2026-11}
model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 32}
train: {train_batch_size: 2, num_train_steps: 2, learning_rate: 1.0e-6}
eval: {tokens: 4096}
seeds: [0, 1]
"""
)
TRAIN = """\
    do: train
    config:
      model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 32}
      train: {train_batch_size: 2, num_train_steps: 2, learning_rate: 1.0e-6}
    seeds: [0, 1]
"""
STEPS = (
    HEAD
    + "steps:\n  tokens: {do: tokenize, config: {source: lab-2026-11}}\n"
    + f"  train:\n{TRAIN}    inputs: {{tokens: tokens}}\n"
    + "  evaluate: {do: evaluate, inputs: {models: train, tokens: tokens}, "
    + "config: {tokens: 4096}}\n"
)
OWN = 'own: {model: "model:Honest"}\n'

HONEST = {
    "settings alone": ARMS,
    "a model of its own": ARMS + OWN,
    "its own batches": ARMS + 'own: {data: "model:one_order"}\n',
    "steps": STEPS,
    "a search for settings": ARMS
    + "tune: {trials: 4, seeds: [100, 101], times: {learning_rate: [0.5, 1]}}\n",
}
CHEATS = {  # name: (declaration, the check that says so)
    "trains on another text": (
        STEPS.replace(
            "steps:\n", "steps:\n  more: {do: tokenize, config: {source: stdlib}}\n"
        ).replace("inputs: {tokens: tokens}\n", "inputs: {tokens: more}\n"),
        "data",
    ),
    "trains on a text of its own making": (
        STEPS.replace(
            "steps:\n",
            'steps:\n  mine: {do: "model:one_order"}\n'
            "  more: {do: tokenize, inputs: {text: mine}}\n",
        ).replace("inputs: {tokens: tokens}\n", "inputs: {tokens: more}\n"),
        "data",
    ),
    "mixes another text in": (
        STEPS.replace(
            "steps:\n",
            "steps:\n  more: {do: tokenize, config: {source: stdlib}}\n"
            "  mixed: {do: mix, inputs: {tokens: tokens, more: more}, "
            "config: {weights: {tokens: 1, more: 1}}}\n",
        ).replace("inputs: {tokens: tokens}\n", "inputs: {tokens: mixed}\n"),
        "data",
    ),
    "is scored on another text": (ARMS.replace("lab-2026-11", "stdlib"), "data"),
    "is scored on fewer tokens": (ARMS.replace("4096", "1024"), "data"),
    "adds seeds until one is lucky": (ARMS.replace("[0, 1]", "[0, 1, 2]"), "seeds"),
    "has the best of its seeds alone": (ARMS.replace("[0, 1]", "[17]"), "seeds"),
    "has more devices in its steps": (
        STEPS.replace("    do: train\n", "    do: train\n    resources: {kind: cpu, count: 2}\n"),
        "device",
    ),
    "has more devices": (ARMS.replace("{kind: cpu}", "{kind: cpu, count: 2}"), "device"),
}
