from __future__ import annotations

from pathlib import Path

from rudder.distdgl.job import Job
from rudder.plugins import PluginFile
from rudder.scenario import Scenario
from rudder.spec import Spec


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    job = Job(
        Scenario.make(buffer=1000, fan_out=(5, 5), rate=20.0),
        Spec.parse("fixed:interval=4"),
        tmp_path / "partition",
        tmp_path / "run",
        (PluginFile("/somewhere/mine.py", "ab" * 32),),
        verify=True,
    )
    assert Job.load(job.save()) == job


def test_share_and_count_of_a_buffer_stay_what_they_are(tmp_path: Path) -> None:
    for buffer in (1.0, 1):
        job = Job(Scenario.make(buffer=buffer), Spec("always"), tmp_path, tmp_path / "run")
        assert type(Job.load(job.save()).scenario.buffer) is type(buffer)
