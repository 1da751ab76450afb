"""What a lab decides: `.github/regatta/devices.yml` and `tracks.yml`, merged into the defaults."""

from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.schema import lab_config
from runner.schema.lab_config import DEVICES, FOLDER, TRACKS, LabConfig
from tests.decided import decide
from tests.pretended import DECLARED, declare

ROOT = Path(__file__).parents[3]
TEXT = "0" * 64
A100 = "a100: {description: NVIDIA A100, peak_flops: 3.12e+14, platform: gpu, ray_gpus: 1}\n"
MINE = f"""\
data:
  mine: {{source: text.txt, validation_sha256: "{TEXT}", eval_tokens: 64}}
tracks:
  mine-cost: {{title: Mine, kind: target, data: mine, target: 2, spread: 0.1}}
"""


def parse(devices: str = "", tracks: str = "") -> LabConfig:
    return lab_config.parse({DEVICES: devices.encode(), TRACKS: tracks.encode()})


def told(devices: str = "", tracks: str = "") -> list[str]:
    with pytest.raises(BadExperiment) as refused:
        parse(devices, tracks)
    return [str(problem) for problem in refused.value.problems]


def test_a_lab_that_says_nothing_has_the_defaults() -> None:
    commented = (ROOT / DEVICES).read_text(), (ROOT / TRACKS).read_text()
    here, defaults = lab_config.find(ROOT), lab_config.defaults()
    assert parse() == parse(*commented) == defaults
    assert (here.devices, here.tracks) == (defaults.devices, defaults.tracks)
    assert {"cpu", "h100", "v5p"} <= lab_config.defaults().devices.keys()


def test_what_a_lab_names_is_added_or_replaced_and_null_takes_it_away() -> None:
    found = parse(f"h100: {{price: 2.1}}\nv4: null\n{A100}", MINE + "  small-time: null\n")
    default = lab_config.defaults()
    h100 = found.devices["h100"]
    assert (h100.price, h100.peak_flops) == (2.1, default.devices["h100"].peak_flops)
    assert found.devices["a100"].on_ray
    assert found.devices.keys() == default.devices.keys() - {"v4"} | {"a100"}
    assert found.tracks.keys() == default.tracks.keys() - {"small-time"} | {"mine-cost"}
    assert found.tracks["mine-cost"].data.source == "text.txt"
    changed = parse(tracks="tracks: {small-cost: {target: 2.0}}\n").tracks["small-cost"]
    assert (changed.target, changed.spread) == (2.0, default.tracks["small-cost"].spread)


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ("h100: {prise: 2.1}", "line 1, `h100.prise`: unknown key; did you mean `price`?"),
        (A100 + "b: {platform: gpu}", "line 2, `b.peak_flops`: is missing"),
        ("h100:\n  peak_flops: 0", "line 2, `h100.peak_flops`: it should be greater than or eq"),
        ("h100: {price: -1}", "`h100.price`: it should be greater than or equal to 0"),
        ("h100: {price: 1e999}", "`h100.price`: it should be a finite number"),
        ("h100: {price: much}", "line 1, `h100.price`: must be a number, not `much`"),
        ("h100: {price: 1e308}", "`h100.price`: it should be less than or equal to 1000000000"),
        ("h100: {memory_gib: 1e300}", "`h100.memory_gib`: it should be less than or equal to"),
        ("h100: {peak_flops: 1e-300}", "`h100.peak_flops`: it should be greater than or equal"),
        ("cpu: {ray_cpus: 0.5}", "line 1, `cpu.ray_cpus`: cores are taken whole"),
        ("cpu: {ray_cpus: 0}", "line 1, `cpu`: steps beside training need cores"),
        ("cpu: {platform: gpu}", "line 1, `cpu`: steps beside training need cores"),
        ("h100: {ray_tpu: v4}", "`h100.ray_tpu`: only a kind with `platform: tpu` has it"),
        ("v4: {topologies: null}", "line 1, `v4.topologies`: its slices are missing"),
        ("v4: {topologies: {-4: 2x2}}", "`v4.topologies.-4`: it should be greater than or equal"),
        ("v4: {topologies: {4: '<b>'}}", "`v4.topologies.4`: it should match pattern"),
        ("h100: {platform: npu}", "`h100.platform`: must be `cpu`, `gpu` or `tpu`"),
        ("h100: {description: '**H100**'}", "line 1, `h100.description`: it should match pattern"),
        ("h100: 2", "line 1, `h100`:"),
        ("H100: {price: 2}", "`H100` is not a name of a kind of device"),
        ("cpu: null", "`cpu`: it has to stay"),
        ("- h100", "line 1: it must be a mapping"),
        ("h100: [", f"{DEVICES}, line 1: it is not YAML"),
    ],
)
def test_devices_that_cannot_be_are_told_with_line_and_field(devices: str, words: str) -> None:
    assert any(f"{DEVICES}, " in one and words in one for one in told(devices)), told(devices)


@pytest.mark.parametrize(
    ("tracks", "words"),
    [
        (MINE.replace("data: mine,", "data: mime,"), "did you mean `mine`?"),
        (MINE.replace("target: 2,", ""), "`tracks.mine-cost`: a track of kind target needs `targ"),
        (MINE.replace("spread: 0.1", "sprad: 0.1"), "`tracks.mine-cost.sprad`: unknown key; did"),
        (MINE.replace("title: Mine, ", ""), "line 4, `tracks.mine-cost.title`: is missing"),
        (MINE.replace(TEXT, "soon"), "line 2, `data.mine.validation_sha256`"),
        (MINE.replace("mine-cost", "Mine"), "`Mine` is not a name of a track"),
        (
            MINE.replace("spread: 0.1", "spread: 1e308"),
            "`tracks.mine-cost.spread`: it should be le",
        ),
        (
            MINE.replace("spread: 0.1", "spread: 1e-320"),
            "`tracks.mine-cost.spread`: it should be gr",
        ),
        ("track: {}", "line 1, `track`: unknown key; did you mean `tracks`?"),
        (
            "tracks:\n  small-time:\n    hardware: {kind: h300}",
            "line 3, `tracks.small-time.hardware.kind`: the lab has no devices of kind `h300`",
        ),
    ],
)
def test_tracks_that_cannot_be_are_told_with_line_and_field(tracks: str, words: str) -> None:
    assert any(f"{TRACKS}, " in one and words in one for one in told("", tracks)), told("", tracks)


def test_all_that_is_wrong_with_all_files_is_told_at_once() -> None:
    files = {
        DEVICES: b"h100: {price: -1, prise: 2}",
        TRACKS: b"tracks: {small-cost: {target: x}}",
        f"{FOLDER}/track.yaml": b"",
        f"{FOLDER}/policy.yml": b"\xff",  # read by whom it concerns
    }
    with pytest.raises(BadExperiment) as refused:
        lab_config.parse(files)
    found = [str(one) for one in refused.value.problems]
    assert len(found) == 4
    assert f"{FOLDER}/track.yaml, line 1: nothing reads a file of this name" in found[0]
    assert "did you mean `.github/regatta/tracks.yml`?" in found[0]
    assert "it is not UTF-8 text" in told_of({DEVICES: b"\xff"})


def told_of(files: dict[str, bytes]) -> str:
    with pytest.raises(BadExperiment) as refused:
        lab_config.parse(files)
    return str(refused.value)


def test_the_nearest_folder_upwards_counts(tmp_path: Path) -> None:
    inner = tmp_path / "clones" / "other"
    inner.mkdir(parents=True)
    assert lab_config.find(inner) == lab_config.defaults()
    decide(tmp_path, devices="cpu: {price: 1}\n")
    assert lab_config.find(inner).devices["cpu"].price == 1
    decide(inner, devices="cpu: {price: 2}\n")
    assert lab_config.find(inner / "experiments").devices["cpu"].price == 2
    (inner / FOLDER / "kept.yml").mkdir()
    assert lab_config.find(inner).devices["cpu"].price == 2, "a folder is no file of the lab's"
    decide(inner, devices="cpu: {prise: 2}\n")
    with pytest.raises(BadExperiment, match="prise"):
        lab_config.find(inner)


def test_a_plan_keeps_what_it_was_planned_by_and_is_approved_for_what_runs(tmp_path: Path) -> None:
    folder = declare(tmp_path / "one", DECLARED)
    before = planner.plan_folder(folder)
    decide(tmp_path, devices="cpu: {price: 3, peak_flops: 1e12}\n")
    after = planner.plan_folder(folder)
    assert (before.kinds["cpu"].price, after.kinds["cpu"].price) == (None, 3)
    assert before.fingerprint == after.fingerprint, "the same runs"
    again = type(after).model_validate_json(after.canonical())
    assert again == after
    assert "v5p" not in after.devices, "it names no such devices"


def test_a_plan_of_an_older_lab_goes_by_the_defaults(tmp_path: Path) -> None:
    plan = planner.plan_folder(declare(tmp_path / "one", DECLARED))
    old = plan.model_copy(update={"devices": {}})
    assert b'"devices":' not in old.canonical()
    assert old.kinds == lab_config.defaults().devices
