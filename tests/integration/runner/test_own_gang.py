"""Own code on two hosts: in a box on each, whose only network is the other box."""

import json
import signal
import socket
import threading
from pathlib import Path

import pytest

from runner.isolation import bubblewrap, gang_network
from runner.planning import planner
from runner.store import artifacts
from runner.store.store import Store
from runner.worker import executor, host_group_ray
from tests.runner.local_gang import LocalGangs, await_file

STEPS, EVERY = 150, 5
DECLARED = f"""title: T
resources: {{kind: cpu}}
steps:
  tokens: {{do: tokenize, config: {{source: stdlib}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    resources: {{kind: cpu, count: COUNT}}
    config:
      model: {{vocab_size: 256, seq_len: 32, host: PORT}}
      own: {{model: own:Bigram, schedule: own:rate}}
      train: {{train_batch_size: 64, num_train_steps: {STEPS}, learning_rate: 0.01,
              checkpoint_every: {EVERY}}}
"""
OWN = """
import socket

import jax

class Bigram:
    def __init__(self, config):
        for place in (("127.0.0.1", config["host"]), ("1.1.1.1", 53)):
            try:
                socket.create_connection(place, 1)
            except OSError:
                continue
            raise RuntimeError(f"{place} can be reached from the box")

    def init(self, key):
        first, second = jax.random.split(key)
        return {
            "in": 0.02 * jax.random.normal(first, (256, 32)),
            "out": 0.02 * jax.random.normal(second, (32, 256)),
        }

    def logits(self, params, tokens):
        return params["in"][tokens] @ params["out"]

def rate(config, step):
    return 0.01 / (1 + step / 100)
"""
pytestmark = pytest.mark.skipif(
    bool(bubblewrap.probe()), reason=f"nothing was isolated: {bubblewrap.probe()}"
)


def made(store: Store, folder: Path, count: int, port: int) -> artifacts.Made:
    folder.mkdir(exist_ok=True)
    declared = DECLARED.replace("COUNT", str(count)).replace("PORT", str(port))
    (folder / "experiment.yaml").write_text(declared)
    (folder / "own.py").write_text(OWN)
    plan = planner.plan_folder(folder, store)
    terms = executor.Terms("bubblewrap")
    code = store.local(planner.code_folder(plan))
    for name in ("tokens", "train"):
        last = executor.make(store, name, plan.steps, plan.kinds, code, "x1", terms=terms)
    return last


def losses(of: artifacts.Made) -> list[float]:
    lines = (of.folder / "curve.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.long
def test_own_code_on_two_hosts_learns_what_one_learns_and_goes_on_when_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gangs = LocalGangs(tmp_path / "gangs")
    monkeypatch.setattr(host_group_ray, "run", gangs.run)
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        alone = made(Store(tmp_path / "alone"), tmp_path / "small", 1, port)
        assert gangs.count == 0
        store = Store(tmp_path / "store")

        def kill() -> None:
            await_file(store.local("steps"), "1-*.scratch/checkpoints/5")
            gangs.hosts[1].send_signal(signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        two = made(store, tmp_path / "small", 2, port)
        killer.join()
    assert gangs.count == 2
    assert two.manifest.receipt["processes"] == "2"
    assert ", a network with its gang alone" in two.manifest.receipt["isolation"]
    assert losses(two) == pytest.approx(losses(alone), rel=1e-4)
    assert losses(two) != losses(alone), "two devices add up in another order"


def test_only_who_knows_the_secret_is_let_into_a_network() -> None:
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = ["{}:{}".format(*door.getsockname()) for door in doors]
    found: list[dict[int, socket.socket]] = []

    def open_(rank: int, secret: bytes) -> None:
        found.append(gang_network._linked(rank, doors[rank], addresses, secret))

    first = threading.Thread(target=open_, args=(0, b"right" * 8))
    first.start()
    with pytest.raises(bubblewrap.CannotIsolate):
        open_(1, b"wrong" * 8)
    assert first.is_alive(), "it waits for the real one"
    open_(1, b"right" * 8)
    first.join()
    assert sorted(peer for links in found for peer in links) == [0, 1]
    for end in (*doors, *(link for links in found for link in links.values())):
        end.close()
