"""The clusters of `deploy/` are what Ray reads. `make lint` reads the container files."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray._private.accelerators import TPUAcceleratorManager
from ray.autoscaler._private.util import prepare_config, validate_config

DEPLOY = Path(__file__).parents[2] / "deploy"
CLUSTERS = sorted(DEPLOY.glob("ray-*.yaml"))


def read(path: Path) -> dict[str, Any]:
    return prepare_config(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_a_cluster_is_valid_by_rays_own_schema(path: Path) -> None:
    validate_config(read(path))
    starts = " ".join(yaml.safe_load(path.read_text())["head_start_ray_commands"])
    assert "--dashboard-host=0.0.0.0" in starts, "the bot reaches it from another machine"
    assert "/root/.ray/auth_token" in yaml.safe_load(path.read_text())["file_mounts"]


def test_a_mistake_in_a_cluster_would_be_found() -> None:
    declared = read(CLUSTERS[0])
    with pytest.raises(Exception, match="idle_timeout"):
        validate_config({**declared, "idle_timeout_minutes": "soon"})


def test_its_tpus_are_of_a_kind_that_there_is_and_the_lab_knows() -> None:
    declared = read(DEPLOY / "ray-gcp-tpu.yaml")
    slices = declared["available_node_types"]["v5e-16"]["node_config"]
    assert TPUAcceleratorManager.is_valid_tpu_accelerator_type(slices["acceleratorType"])
    assert slices["acceleratorType"] == "v5litepod-16"
