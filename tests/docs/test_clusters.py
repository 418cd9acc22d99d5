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

#: The fields of batch/v1 Job that the manifest may use, with their types, from the API reference of
#: Kubernetes 1.33.
JOB = yaml.safe_load("""
apiVersion: str
kind: str
metadata: {name: str}
spec:
  completionMode: str
  completions: int
  parallelism: int
  backoffLimitPerIndex: int
  podFailurePolicy:
    rules:
    - action: str
      onExitCodes: {containerName: str, operator: str, values: [int]}
      onPodConditions: [{type: str, status: str}]
  template:
    spec:
      restartPolicy: str
      terminationGracePeriodSeconds: int
      containers:
      - name: str
        image: str
        command: [str]
        resources: {requests: {cpu: str, memory: str}, limits: {memory: str}}
        volumeMounts: [{name: str, mountPath: str}]
      volumes: [{name: str, persistentVolumeClaim: {claimName: str}}]
""")


def check(value, schema, place):
    if isinstance(schema, dict):
        assert isinstance(value, dict), place
        assert set(value) <= set(schema), f"{place}: {set(value) - set(schema)}"
        for name in value:
            check(value[name], schema[name], f"{place}.{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list), place
        for number, each in enumerate(value):
            check(each, schema[0], f"{place}[{number}]")
    else:
        assert type(value).__name__ == schema, f"{place}: {value!r} is not {schema}"


@pytest.fixture(scope="module")
def job():
    (printed,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
    return yaml.safe_load(printed)


def test_every_field_is_one_of_a_job(job):
    check(job, JOB, "job")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", job["metadata"]["name"])


def test_fields_fit_together(job):
    """What the API server refuses otherwise."""
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["completionMode"] == "Indexed", "backoffLimitPerIndex needs it"
    assert pod["restartPolicy"] == "Never", "podFailurePolicy needs it"
    assert spec["parallelism"] <= spec["completions"]
    assert {mount["name"] for mount in container["volumeMounts"]} <= {
        volume["name"] for volume in pod["volumes"]
    }
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
    options = (
        main.get_command(program, command)
        .make_context(command, arguments, parent=program, resilient_parsing=True)
        .params
    )
    assert options["out"].startswith(container["volumeMounts"][0]["mountPath"])
    assert str(options["workers"]) == container["resources"]["requests"]["cpu"]
    shares = [
        parse_task(options["task"], {"JOB_COMPLETION_INDEX": str(n)})
        for n in range(job["spec"]["completions"])
    ]
    numbers = [number for share in shares for number in share.numbers(100)]
    assert sorted(numbers) == list(range(100))
