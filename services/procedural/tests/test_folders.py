"""Syncing folders in which others make and remove some."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from a2m_procedural.folders import stamps, sync_changed


def test_a_folder_that_goes_meanwhile_is_left_out(tmp_path: Path) -> None:
    done = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not done.is_set():
            number += 1
            folder = tmp_path / f"incoming-{number}"
            folder.mkdir()
            folder.rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(2000):
            sync_changed(tmp_path, {str(tmp_path): stamps(tmp_path)[str(tmp_path)]})
    finally:
        done.set()
        other.join()


def test_a_folder_that_is_not_there_at_all_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_changed(tmp_path / "objects", {})
