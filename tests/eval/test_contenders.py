"""What makes a controller another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rudder_controllers.llm.prompt import Template
from rudder_eval.contenders import contender

from rudder.errors import SpecError
from rudder.home import Home


@pytest.mark.parametrize(
    "spec", ["smollm2-135m:template={}", "cascade:outside=smollm2-135m:template={}"]
)
def test_another_text_in_a_template_is_another_controller(
    home: Home, tmp_path: Path, spec: str
) -> None:
    template = tmp_path / "mine.toml"
    shutil.copy(Template.file("steer-v2"), template)
    first = contender(spec.format(template), home)
    assert contender(spec.format(template), home).content == first.content
    template.write_text(template.read_text().replace("buffer", "store"))
    second = contender(spec.format(template), home)
    assert second.spec == first.spec
    assert second.content != first.content


def test_a_template_that_is_nowhere_is_wrong_use(home: Home, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no prompt template .*none\.toml"):
        contender(f"smollm2-135m:template={tmp_path}/none.toml", home)
