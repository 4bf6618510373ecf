"""Shipped files and the person's own folders: found in a checkout, found inside a wheel, never created by asking."""

from __future__ import annotations

from pathlib import Path

import pytest

from circuitlab.disk import paths


def test_a_checkout_has_resources_and_models_beside_the_package() -> None:
    root = Path(paths.__file__).resolve().parents[2]
    assert paths.shipped("resources") == root / "resources"
    assert paths.model_dir("attn-only-2l") == root / "models" / "attn-only-2l"
    assert paths.resource("recipes", "attn-only-2l.toml").is_file()


def test_a_wheel_has_them_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "circuitlab"
    (package / "resources").mkdir(parents=True)
    monkeypatch.setattr(paths, "_PACKAGE", package)
    assert paths.resource("icons", "a.svg") == package / "resources" / "icons" / "a.svg"
    assert paths.shipped("models") == package.parent / "models", "a folder that is not inside is looked for beside"


def test_a_model_is_a_folder_with_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (("b", "config.json"), ("a", "config.json"), ("unfinished", "model.safetensors")):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / file).touch()
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "circuitlab")
    assert paths.shipped_models() == ("a", "b")
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "nowhere" / "circuitlab")
    assert paths.shipped_models() == ()


@pytest.mark.parametrize("folder", [paths.config_home, paths.state_home, paths.cache_home])
def test_own_folders_follow_the_environment_and_are_not_made(folder, home: Path) -> None:
    assert home in folder().parents
    assert folder().name == "circuitlab"
    assert not folder().exists()


@pytest.mark.parametrize(
    ("platform", "config", "cache"),
    [
        ("linux", ".config/circuitlab", ".cache/circuitlab"),
        ("darwin", "Library/Preferences/circuitlab", "Library/Caches/circuitlab"),
        ("win32", "AppData/Local/circuitlab", "AppData/Local/Cache/circuitlab"),
    ],
)
def test_own_folders_by_platform(platform: str, config: str, cache: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", platform)
    assert paths.config_home() == home / config
    assert paths.cache_home() == home / cache
    assert paths.log_file().parent == paths.state_home()
