"""The command line and its reports, against a server on stdio."""

import json
import shlex
import subprocess
import sys
from xml.etree import ElementTree

import pytest

SERVER = shlex.join([sys.executable, "-m", "a2m_server", "--stdio"])


@pytest.fixture
def conformance():
    def run(*arguments):
        command = [sys.executable, "-m", "a2m_conformance", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    return run


def test_a_conforming_server_ends_with_0_and_leaves_reports(conformance, tmp_path):
    junit, report = tmp_path / "report.xml", tmp_path / "report.json"
    done = conformance("--command", SERVER, "--only", "WHERE", "--junit", str(junit), "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "conforms" in done.stdout
    suite = ElementTree.parse(junit).getroot()
    document = json.loads(report.read_text())
    assert int(suite.get("tests")) == len(document["results"]) == 15
    assert suite.get("failures") == "0"
    assert document["passed"]
    assert document["counts"]["passed"] == 15


def test_a_broken_server_ends_with_1_and_says_what_broke(conformance, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'a2m_server', '--stdio'], stdout=subprocess.PIPE)\n"
        "for line in child.stdout:\n"
        "    print(line.decode().replace('-32601', '-32600'), end='', flush=True)\n"
    )
    junit = tmp_path / "report.xml"
    command = shlex.join([sys.executable, str(broken)])
    done = conformance("--command", command, "--only", "CAPABILITY", "--junit", str(junit))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "CAPABILITY-02" in done.stdout
    assert "does not conform" in done.stdout
    failures = ElementTree.parse(junit).getroot().findall("testcase/failure")
    assert len(failures) == 1
    assert "-32601" in failures[0].get("message")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--url", "http://127.0.0.1:1/", "--command", SERVER),
        ("--url", "http://127.0.0.1:1/"),
        ("--command", "no-such-program"),
        ("--command", shlex.join([sys.executable, "-c", "pass"])),
        ("--command", SERVER, "--only", "NO-SUCH"),
    ],
    ids=["neither", "both", "nobody listens", "no program", "ends at once", "no requirement"],
)
def test_what_cannot_be_tried_ends_with_2_and_a_reason(conformance, arguments):
    done = conformance(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_the_requirements_can_be_listed(conformance):
    done = conformance("--list", "--only", "TIMELINE")
    assert done.returncode == 0
    assert "TIMELINE-04" in done.stdout
    assert "(local)" in done.stdout
