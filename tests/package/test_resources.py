"""Shared files are found in a source tree, beside an installed module and through AMENT_PREFIX_PATH.

The installed case is proven with real builds in test_wheel.py and test_colcon.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from auras_ros import resources
from tests.package.tree import ROOT

MANIFEST = "<package><name>auras_ros</name></package>"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that lies in no source tree, and an interpreter without shared files."""
    monkeypatch.setattr(resources, "__file__", str(tmp_path / "site" / "auras_ros" / "resources.py"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "interpreter"))
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    return tmp_path


def make_share(prefix: Path, **files: str) -> Path:
    share = prefix / "share" / "auras_ros"
    share.mkdir(parents=True)
    (share / "package.xml").write_text(MANIFEST)
    for name, text in files.items():
        path = share / name.replace("__", "/").replace("_yaml", ".yaml")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return share


def test_source_tree_is_found() -> None:
    assert resources.share_dir() == ROOT


@pytest.mark.parametrize("prefix", ["site", "interpreter"])
def test_installed_files_are_found(nowhere: Path, prefix: str) -> None:
    share = make_share(nowhere / prefix, config__a_yaml="1")
    assert resources.share_dir() == share
    assert resources.find("config", "a.yaml") == share / "config" / "a.yaml"


def test_ament_prefixes_are_asked_in_order(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = make_share(nowhere / "overlay", config__a_yaml="over")
    underlay = make_share(nowhere / "underlay", config__a_yaml="under", config__b_yaml="under")
    monkeypatch.setenv("AMENT_PREFIX_PATH", os.pathsep.join([str(nowhere / "overlay"), str(nowhere / "underlay")]))
    assert resources.share_dir() == overlay
    assert resources.find("config", "a.yaml") == overlay / "config" / "a.yaml"
    assert resources.find("config", "b.yaml") == underlay / "config" / "b.yaml"


def test_another_packages_share_is_not_ours(nowhere: Path) -> None:
    share = make_share(nowhere / "interpreter", config__a_yaml="1")
    (share / "package.xml").write_text("<package><name>other</name></package>")
    with pytest.raises(FileNotFoundError, match="looked in"):
        resources.share_dir()


def test_no_files_at_all_lists_every_place(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMENT_PREFIX_PATH", "/overlay")
    with pytest.raises(FileNotFoundError) as error:
        resources.share_dir()
    for place in (nowhere / "interpreter", nowhere / "site", Path("/overlay")):
        assert str(place / "share" / "auras_ros") in str(error.value)


def test_missing_file_names_the_places_and_what_there_is(nowhere: Path) -> None:
    share = make_share(nowhere / "interpreter", config__a_yaml="1")
    with pytest.raises(FileNotFoundError) as error:
        resources.find("config", "b.yaml")
    assert str(share / "config" / "b.yaml") in str(error.value)
    assert "a.yaml" in str(error.value)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../package.xml", "a/../../package.xml"])
def test_names_stay_inside_their_folder(name: str) -> None:
    with pytest.raises(ValueError, match="relative path inside config/"):
        resources.find("config", name)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 'secrets'"):
        resources.find("secrets", "a")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", ".", "..", "~nobody_of_that_name/x", "./no_such", "a\0b", "no_such"])
def test_a_checkpoint_that_is_none_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one error that every node takes for a setting that cannot work, or as the folder that it is."""
    monkeypatch.chdir(tmp_path)
    if name in (".", ".."):
        assert resources.checkpoint(name) == Path(name)
    else:
        with pytest.raises(FileNotFoundError, match="checkpoint"):
            resources.checkpoint(name)


def test_a_folder_here_needs_no_separator_unless_one_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose name both have could start another robot's policy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert resources.checkpoint("mine") == resources.checkpoint("./mine") == Path("mine")
    shipped = resources.checkpoint("pusht")
    (tmp_path / "pusht").mkdir()
    assert resources.checkpoint("pusht") == shipped, "a folder that is no checkpoint"
    (tmp_path / "pusht" / "config.json").touch()
    with pytest.raises(FileNotFoundError, match=r"one ships: write \./pusht or /"):
        resources.checkpoint("pusht")
    assert resources.checkpoint("./pusht") == Path("pusht")
    monkeypatch.chdir(shipped.parent)
    assert resources.checkpoint("pusht") == shipped


def test_the_names_that_ship_are_folders_of_checkpoints() -> None:
    names = resources.checkpoint_names()
    assert {"pusht", "pusht-vlm", "lift"} <= set(names)
    assert not {"pusht-monitor", "pusht-detector"} & set(names), "these hold adapters"
