"""A folder whose chat template takes too long: the request is refused, and others are answered meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from auras_ros.checkpoints.vlm import template_process
from tests.checkpoints.vlm.test_vlm_refusals import copied
from tests.serve.serving import asking, serving

SLOW = "{% set x = 'x' * 100000 %}{% for a in x %}{% for b in x %}{% endfor %}{% endfor %}"


def test_health_is_answered_while_a_template_takes_too_long(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_process, "RENDER_S", 3.0)
    copied(folder, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(SLOW)
    body = {"messages": asking("how many"), "max_tokens": 2}
    with serving(tmp_path) as served, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(served.post, "/v1/chat/completions", body)
        healthy = 0
        while not answer.done():
            assert served.get("/health")[0] == 200
            healthy += 1
        status, said = answer.result()
    assert status == 400
    assert "chat template does not take them: it may take 3 s and 256 MiB" in said["error"]["message"]
    assert healthy >= 3  # of hundreds: it was not answered only before and after
