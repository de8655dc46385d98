"""Chat templates from folders: memory and time of each rendering are limited, whatever the template calls.

Guards: a filter, an operator or a method that takes gigabytes or minutes (each of these did, in the process of the
server and of the robot's node); a template that does so while it is compiled; a process that stays behind; a rendering
that fails after another one was given up; a server that answers nobody meanwhile.
"""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.tokenizer import PromptError
from auras_ros.checkpoints.vlm import template_process
from auras_ros.checkpoints.vlm.template_process import ChatTemplateError, TemplateProcess
from auras_ros.checkpoints.vlm.template_service import MOST_MEMORY, MOST_TEXT
from auras_ros.measure.memory import resident_bytes
from tests.checkpoints.vlm.test_chat import prompts
from tests.sim.processes import ends

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

VALUES: dict[str, Any] = {"messages": [{"role": "user", "content": "left?"}]}
LIMIT_S = 1.0  # of these tests: none of the templates below ends by itself in that time
ENOUGH_S = 60.0  # a busy machine starts processes slowly
GROWTH = 96 << 20  # bytes of this process, while the other one takes all that it may
ROLE = "messages[0].role"  # in place of ROLE below: no constant, so that nothing is computed before a rendering

TOO_MUCH = {
    "center": "{{ ROLE.center(900000000) }}",
    "ljust": "{{ ROLE.ljust(900000000) }}",
    "expandtabs": "{{ ('\t' ~ ROLE).expandtabs(900000000) }}",
    "center-filter": "{{ ROLE | center(900000000) }}",
    "percent": "{{ '%900000000d' % (ROLE | length) }}",
    "format-filter": "{{ '%900000000s' | format(ROLE) }}",
    "format-method": "{{ '{:900000000}'.format(ROLE) }}",
    "format-nested": "{{ '{:{}}'.format(ROLE, 900000000) }}",
    "tojson-indent": "{{ messages | tojson(indent=300000000) }}",
    "indent": "{{ (ROLE ~ '\n' ~ ROLE) | indent(900000000, true) }}",
    "tilde": "{% set n = namespace(x='x') %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "lists": "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
    "replace": "{% set n = namespace(x='xx') %}{% for i in range(40) %}{% set n.x = n.x | replace('x', 'xx') %}"
    "{% endfor %}{{ n.x }}",
    "replace-method": "{% set n = namespace(x='xx') %}{% for i in range(9) %}{% set n.x = n.x.replace('x', n.x) %}"
    "{% endfor %}{{ n.x }}",
    "join": "{% set n = namespace(x='xx') %}{% for i in range(9) %}{% set n.x = n.x | join(n.x) %}{% endfor %}"
    "{{ n.x }}",
    "product-in-steps": "{{ [ROLE] * 1000000 | join('x' * 1000000) }}",
    "batch": "{{ messages | batch(900000000, 'x') | list }}",
    "slice": "{{ messages | slice(900000000, 'x') | list }}",
    "output": "{% for i in range(90000) %}{{ 'x' * 100000 }}{% endfor %}",
    "blocks": "{% set x %}{% for i in range(90000) %}{{ 'x' * 100000 }}{% endfor %}{% endset %}",
    "constant-center": "{{ 'x' | center(900000000) }}",
    "constant-format": "{{ '%900000000s' | format('x') }}",
    "constant-percent": "{{ '%900000000s' % 'x' }}",
    "number": "{{ '%0900000000d' % 1 if ROLE }}",
    "wordwrap": "{{ (ROLE * 100000) | wordwrap(1, true, 'x' * 1000000) }}",
}
TOO_LONG = {
    "loops-of-a-list": "{% set x = 'x' * 100000 %}{% for a in x %}{% for b in x %}{% endfor %}{% endfor %}",
    "macros": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "macros-of-macros": "{% macro m(n) %}{% for i in 'x' * 9 %}{% if n %}{{ m(n - 1) }}{% endif %}{% endfor %}"
    "{% endmacro %}{{ m(60) }}",
    "recursive-loop": "{% for a in [[]] recursive %}{{ loop([a] * 2) if loop.depth < 60 }}{% endfor %}",
    "search": "{{ ('a' * 1000000 ~ 'b') in ('a' * 1000000 ~ 'c' ~ ROLE) }}"
    "{% for i in range(90000) %}{{ ('a' * 100000).count(('a' * 50000) ~ 'b' ~ ROLE) }}{% endfor %}",
    "sort": "{% for i in range(90000) %}{{ ('x' * 500000) | sort | length }}{% endfor %}",
    "urlize": "{% for i in range(90000) %}{{ ('a.' * 200000 ~ 'com ') | urlize | length }}{% endfor %}",
    "striptags": "{% for i in range(90000) %}{{ ('<' * 300000) | striptags | length }}{% endfor %}",
}
COMPILED = {
    "deep": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "deep-not": "{{ " + "not " * 100_000 + "1 }}",
    "deep-if": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "long-chain": "{{ 1" + " + 1" * 100_000 + " }}",
}


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_process, "RENDER_S", LIMIT_S)


@pytest.fixture
def bounded() -> Any:
    """Memory and time of a test."""
    gc.collect()
    before, began_s = resident_bytes(), time.monotonic()
    yield
    assert time.monotonic() - began_s < ENOUGH_S
    assert resident_bytes() - before < GROWTH


def switching(template: str) -> str:
    """A template that is harmless in a second conversation."""
    return "{% if messages | length > 1 %}ok{% else %}" + template.replace("ROLE", ROLE) + "{% endif %}"


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", [*TOO_MUCH, *TOO_LONG])
def test_a_rendering_that_takes_too_much_is_given_up(name: str) -> None:
    template = TemplateProcess(switching((TOO_MUCH | TOO_LONG)[name]))
    with pytest.raises(ChatTemplateError) as refused:
        template.render(VALUES)
    assert "\n" not in str(refused.value).strip()
    assert template.render({"messages": VALUES["messages"] * 2}) == "ok"
    template.close()


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", COMPILED)
def test_a_template_that_takes_too_much_while_it_is_compiled_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja: not a Jinja template: ."):
        prompts("llava", tmp_path, COMPILED[name])


def test_what_ran_out_of_memory_is_told_from_what_ran_out_of_time() -> None:
    with pytest.raises(ChatTemplateError, match=rf"takes more memory than it may, 1 s and {MOST_MEMORY >> 20} MiB"):
        TemplateProcess(switching(TOO_MUCH["center"])).render(VALUES)
    with pytest.raises(ChatTemplateError, match=r"it may take 1 s and 256 MiB: .* has said nothing for 1 s"):
        TemplateProcess(TOO_LONG["loops-of-a-list"]).render(VALUES)


def test_a_text_that_is_too_long_for_any_model_is_refused() -> None:
    template = TemplateProcess("{% for i in range(30) %}{{ 'x' * 100000 }}{% endfor %}")
    with pytest.raises(ChatTemplateError, match=f"it gives 3000000 characters, expected {MOST_TEXT} at most"):
        template.render(VALUES)


def test_the_process_ends_with_its_template() -> None:
    template = TemplateProcess("{{ 1 }}")
    assert template._child is not None
    with ends(template._child.pid):
        del template
        gc.collect()


def test_a_process_that_was_killed_is_started_again() -> None:
    template = TemplateProcess("{{ messages[0].content }}")
    assert template._child is not None
    template._child._process.kill()
    with pytest.raises(ChatTemplateError, match="was ended by SIGKILL"):
        template.render(VALUES)
    assert template.render(VALUES) == "left?"


def test_the_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="messages: the folder's chat template does not take them: it takes more"):
        prompts("llava", tmp_path, switching(TOO_MUCH["ljust"])).chat([{"role": "user", "content": "left?"}])


def test_other_threads_run_while_one_renders() -> None:
    """What the server's event loop needs: its /health does not wait for a template."""
    template = TemplateProcess(switching(TOO_LONG["search"]))
    turns, done = 0, threading.Event()

    def render() -> None:
        with pytest.raises(ChatTemplateError):
            template.render(VALUES)
        done.set()

    thread = threading.Thread(target=render)
    thread.start()
    while not done.wait(0.01):
        turns += 1
    thread.join()
    assert turns >= 10  # of some hundred
