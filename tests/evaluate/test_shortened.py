"""`--actions`: a checkpoint that already gives so many is played as it is, whatever its family.

Guards: a policy of one action that cannot be executed when it comes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.shortened import shortened
from auras_ros.policies.loaders.robomimic import translate
from tests.policies.loaders.robomimic_fixtures import CLONING_LOW_DIM, DIFFUSION_LOW_DIM, FOLDER, robot


def test_the_checkpoints_own_number_changes_nothing(tmp_path: Path) -> None:
    for name, own in ((CLONING_LOW_DIM, 1), (DIFFUSION_LOW_DIM, 4)):
        path = FOLDER / f"{name}.pth"
        checkpoint = translate(path, robot(tmp_path, name)).checkpoint("digest", path)
        assert shortened(checkpoint, own) is checkpoint
        assert shortened(checkpoint, 0) is checkpoint
        with pytest.raises(SettingsError, match="does not generate its chunk action by action"):
            shortened(checkpoint, own + 1)
