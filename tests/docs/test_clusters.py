"""The manifest for Kubernetes in docs/clusters.md: its structure, and that its parts fit together."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

from dataprep.commands.base import main
from dataprep.run.work import parse_task

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"


@pytest.fixture(scope="module")
def job():
    (printed,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
    return yaml.safe_load(printed)


def test_fields_fit_together(job):
    """What the API server refuses otherwise."""
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["completionMode"] == "Indexed", "backoffLimitPerIndex needs it"
    assert pod["restartPolicy"] == "Never", "podFailurePolicy needs it"
    assert spec["parallelism"] <= spec["completions"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    for rule in spec["podFailurePolicy"]["rules"]:
        assert rule["action"] in ("FailJob", "FailIndex", "Ignore", "Count")
        assert ("onExitCodes" in rule) != ("onPodConditions" in rule)
        codes = rule.get("onExitCodes")
        if codes:
            assert codes["containerName"] == container["name"]
            assert codes["operator"] in ("In", "NotIn")
            assert 0 not in codes["values"]


def test_each_pod_gets_its_share(job):
    (container,) = job["spec"]["template"]["spec"]["containers"]
    program, command, *arguments = container["command"]
    assert program == "dataprep"
    program = click.Context(main, **main.context_settings)
    made = main.get_command(program, command)
    context = made.make_context(command, arguments, parent=program, resilient_parsing=True)
    options = context.params
    assert options["out"].startswith(container["volumeMounts"][0]["mountPath"])
    assert str(options["workers"]) == container["resources"]["requests"]["cpu"]
    numbers = []
    for pod in range(job["spec"]["completions"]):
        share = parse_task(options["task"], {"JOB_COMPLETION_INDEX": str(pod)})
        numbers += share.numbers(100)
    assert sorted(numbers) == list(range(100))
