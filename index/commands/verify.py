"""The command `driftline verify`: it also knows what a service has beside a run."""

from __future__ import annotations

from functools import partial

from driftline.deploy.commands.verify import verify_command
from driftline.index.serving.checking import check_segments
from driftline.index.serving.definition import check_definition
from driftline.serve.running.verifying import look_beside

verify = verify_command(
    partial(look_beside, check_files=check_segments, check_definition=check_definition)
)
