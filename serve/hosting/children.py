"""The child processes of a service besides those of its flow: the journal and the views.

The number of restarts of these children is not limited, since the rest of the service keeps
answering meanwhile. Only a child that exits with `CANNOT_START` ends the service.
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

LONG_LIFE_S = 10.0
"""A child that ran for this many seconds is restarted without back-off."""

FINISH_TIMEOUT_S = 10.0
"""Timeout in seconds for the last checkpoints of views."""

SIGTERM_RETRY_S = 0.25
"""Interval in seconds at which SIGTERM is sent to the remaining views."""

_JOURNAL_MODULE = "driftline.serve.hosting.journal_process"
_VIEW_MODULE = "driftline.serve.hosting.view_process"


class Children(Supervisor):
    """Supervisor of the processes of the journal and all views.

    The end of its context kills them, which loses no output.
    """

    def __init__(self, config: ServiceConfig) -> None:
        self.is_ending = False
        """Whether the service shuts down; then children that exit at SIGTERM are not restarted."""
        self._config = config
        self._roles = {JOURNAL: (JOURNAL, 0)} | {
            replace(config, role=view.name, shard=shard).name: (view.name, shard)
            for view in config.views
            for shard in range(view.shards)
        }
        """Name of a child -> (role, shard)."""
        policy = RestartPolicy(limit=inf, long_life_s=LONG_LIFE_S)
        super().__init__(self._roles, policy, config.process.limits.missing_after_s)

    def stop(self, wait_s: float = 0.0) -> None:
        """Kill all children at once; `wait_s` is ignored."""
        super().stop(0.0)

    def finish(self) -> None:
        """Stop the views after their last checkpoints, so that the next start is quick.

        Waits for at most `FINISH_TIMEOUT_S`.
        """
        running = [process for name, process in self._processes.items() if name != JOURNAL]
        deadline = monotonic() + FINISH_TIMEOUT_S
        while running and monotonic() < deadline:
            for process in running:  # resend: a starting process has no handler yet
                process.send_signal(SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                running[0].wait(SIGTERM_RETRY_S)
            running = [process for process in running if process.poll() is None]

    def _is_final_exit(self, status: int) -> bool:
        return self.is_ending and status == STOPPED

    def _launch(self, name: str, token: str) -> ChildProcess:
        role, shard = self._roles[name]
        config = replace(self._config, role=role, shard=shard)
        child = ChildProcess(name, partial(self._popen, config))
        self._exits.watch(child.pid)
        return child

    def _popen(self, config: ServiceConfig, pipes: Pipes) -> subprocess.Popen[bytes]:
        config = replace(config, lifeline=pipes.lifeline, keep_alive=pipes.keep_alive)
        module = _JOURNAL_MODULE if config.role == JOURNAL else _VIEW_MODULE
        return start_module(module, config.to_json(), pipes)
