"""Which names the server answers to: pages in a browser may not reach it under a name of their own."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest

from auras_ros.parameters import ParameterError
from auras_ros.serve.errors import ApiError
from auras_ros.serve.hosts import AllowedHosts
from auras_ros.serve.options import ServeOptions, make_options, read_options
from tests.serve.serving import LONG_S, Served, serving


def ask(served: Served, hosts: list[str], origins: list[str], method: str = "GET") -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=LONG_S)
    try:
        connection.putrequest(method, "/health", skip_host=True)
        for name, values in (("Host", hosts), ("Origin", origins)):
            for value in values:
                connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000"])
def test_names_of_this_machine_are_answered(served: Served, host: str) -> None:
    assert ask(served, [host], [])[0] == 200
    assert ask(served, [host], [f"http://{host}"])[0] == 200


@pytest.mark.parametrize(
    ("hosts", "origins", "status", "named"),
    [
        (["evil.example"], [], 421, "--allowed-host"),
        (["evil.example:8000"], [], 421, "'evil.example:8000'"),
        (["localhost.evil.example"], [], 421, "--allowed-host"),
        (["127.0.0.1.evil.example"], [], 421, "--allowed-host"),
        (["evil.example@localhost"], [], 421, "--allowed-host"),
        (["localhost:80:80"], [], 421, "--allowed-host"),
        (["192.168.0.2"], [], 421, "--allowed-host"),
        ([""], [], 421, "--allowed-host"),
        (["localhost", "evil.example"], [], 400, "expected one, got 2"),
        ([], [], 400, "expected one, got 0"),
        (["localhost"], ["http://evil.example"], 403, "Origin: 'http://evil.example'"),
        (["localhost"], ["https://localhost.evil.example:8000"], 403, "--allowed-host"),
        (["localhost"], ["null"], 403, "Origin: 'null'"),
        (["localhost"], ["http://["], 403, "--allowed-host"),
        (["localhost"], ["http://localhost", "http://evil.example"], 403, "evil.example"),
    ],
)
def test_other_names_are_refused(served: Served, hosts: list[str], origins: list[str], status: int, named: str) -> None:
    refused = served.service.metrics.refused[str(status)]
    answered, body = ask(served, hosts, origins)
    error = body["error"]
    assert isinstance(error, dict)
    assert (answered, named in error["message"]) == (status, True), error
    assert served.service.metrics.refused[str(status)] == refused + 1


def test_a_name_that_is_allowed_is_answered(folder: Path) -> None:
    with serving(folder, allowed_host=("robot.local",)) as served:
        assert ask(served, ["robot.local:8000"], ["https://robot.local"])[0] == 200
        assert ask(served, ["localhost"], [])[0] == 200
        assert ask(served, ["other.local"], [])[0] == 421


@pytest.mark.parametrize(
    ("host", "allowed", "name", "is_answered"),
    [
        ("127.0.0.1", (), "robot.local", False),
        ("127.0.0.5", (), "127.0.0.5", True),
        ("127.0.0.5", (), "robot.local", False),
        ("::1", (), "robot.local", False),
        ("0.0.0.0", (), "robot.local", True),
        ("0.0.0.0", ("robot.local",), "robot.local", True),
        ("0.0.0.0", ("robot.local",), "192.168.0.2:8000", True),
        ("0.0.0.0", ("robot.local",), "evil.example", False),
        ("robot.lan", ("robot.local",), "robot.lan", True),
    ],
)
def test_a_server_that_others_reach_has_a_list_where_one_is_given(
    host: str, allowed: tuple[str, ...], name: str, is_answered: bool
) -> None:
    """And takes addresses, which no page can have as its own name."""
    hosts = AllowedHosts.of(ServeOptions(host=host, allowed_host=allowed))
    if is_answered:
        hosts.check("1.1", [name.encode()], [])
    else:
        with pytest.raises(ApiError, match="--allowed-host"):
            hosts.check("1.1", [name.encode()], [])


def test_an_old_client_has_no_host() -> None:
    AllowedHosts.of(ServeOptions()).check("1.0", [], [])


def test_names_come_from_the_command_line_and_from_a_file(tmp_path: Path) -> None:
    for given in ("Robot.local, robot", ["robot.local", "robot"], ["robot.local,robot", "robot"]):
        assert make_options({"allowed_host": given})[0].allowed_host == ("robot.local", "robot")
    file = tmp_path / "config.yaml"
    file.write_text("allowed_host: [robot.local, robot]\n")
    assert make_options(read_options(file))[0].allowed_host == ("robot.local", "robot")


@pytest.mark.parametrize("given", ["http://robot.local", "robot.local:8000", "", "a b", "*", 5, ["a", None]])
def test_what_is_no_name_is_refused(given: object) -> None:
    with pytest.raises(ParameterError, match="serve: allowed_host: expected a host's name"):
        make_options({"allowed_host": given})
