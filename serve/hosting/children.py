"""The child processes of a service besides those of its flow: the journal and the views.

Restarts of these children are not limited, since the rest of the service keeps answering.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from functools import partial
from math import inf
from signal import SIGTERM
from time import monotonic

from msgspec.structs import replace

from driftline.deploy.runtime.supervision.child_process import (
    ChildProcess,
    Pipes,
    start_module,
)
from driftline.deploy.runtime.supervision.restarts import STOPPED, RestartPolicy
from driftline.deploy.runtime.supervision.supervisor import Supervisor
from driftline.serve.hosting.config import JOURNAL, ServiceConfig

WELL_S = 10.0
"""A child that ran for this long is restarted without back-off, in seconds."""

FINISH_S = 10.0
"""Timeout for the last checkpoints of views; without them the next start takes longer."""

SIGTERM_RETRY_S = 0.25
"""Interval at which SIGTERM is sent to the remaining views."""

_MODULES = "driftline.serve.hosting.journal_process", "driftline.serve.hosting.view_process"


class Children(Supervisor):
    """The journal and all views. Leaving the context kills them; no output is lost."""

    def __init__(self, config: ServiceConfig) -> None:
        self.ending = False
        """Whether the service shuts down; then views that exit at SIGTERM are not restarted."""
        self._config = config
        self._roles = {JOURNAL: (JOURNAL, 0)} | {
            replace(config, role=view.name, shard=shard).name: (view.name, shard)
            for view in config.views
            for shard in range(view.shards)
        }
        policy = RestartPolicy(limit=inf, long_life_s=WELL_S)
        super().__init__(self._roles, policy, config.process.limits.missing_after_s)

    def stop(self, wait_s: float = 0.0) -> None:
        """Kill all children."""
        super().stop(0.0)

    def finish(self) -> None:
        """Let views write their last checkpoints, so that the next start is quick."""
        left = [process for name, process in self._processes.items() if name != JOURNAL]
        until = monotonic() + FINISH_S
        while left and monotonic() < until:
            for each in left:  # resend: a starting process has no handler yet
                each.send_signal(SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                left[0].wait(SIGTERM_RETRY_S)
            left = [each for each in left if each.poll() is None]

    def _is_final_exit(self, status: int) -> bool:
        return self.ending and status == STOPPED

    def _launch(self, name: str, token: str) -> ChildProcess:
        role, shard = self._roles[name]
        config = replace(self._config, role=role, shard=shard)
        child = ChildProcess(name, partial(self._popen, config))
        self._exits.watch(child.pid)
        return child

    def _popen(self, config: ServiceConfig, pipes: Pipes) -> subprocess.Popen[bytes]:
        config = replace(config, lifeline=pipes.lifeline, keep_alive=pipes.keep_alive)
        return start_module(_MODULES[config.role != JOURNAL], config.to_json(), pipes)
