"""The main function of a service's processes: sets up lifeline and logs, runs, and exits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from driftline.deploy.runtime.logs import log_to_parent
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.child import name_process
from driftline.deploy.runtime.supervision.lifeline import exit_with_parent
from driftline.deploy.runtime.supervision.restarts import CANNOT_START, DIED, STOPPED
from driftline.engine.errors import DriftlineError
from driftline.engine.events import event_fields, log
from driftline.serve.hosting.config import ServiceConfig

HUNG_AFTER_S = 60.0
"""After a turn of this many seconds, the process counts as hung and sends no more heartbeats."""


def heartbeat_context(config: ServiceConfig, runtime: Runtime) -> Heartbeat:
    """Return a context manager that sends heartbeats to the parent."""
    return Heartbeat(runtime, [], keep_alive_fd=config.keep_alive, hung_after_s=HUNG_AFTER_S)


def run_process(argument: str, run: Callable[[ServiceConfig], None]) -> None:
    """Call `run`, and exit the process. `argument`: the configuration as JSON.

    The exit status is STOPPED if `run` returns, CANNOT_START after a DriftlineError, else DIED.
    """
    status = _run_to_status(ServiceConfig.from_json(argument), run)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a thread that does not end must not keep the process alive


def _run_to_status(config: ServiceConfig, run: Callable[[ServiceConfig], None]) -> int:
    if config.lifeline >= 0:
        exit_with_parent(config.lifeline)
    log_to_parent(config.name, config.process.log_level)
    name_process(config.name)
    sys.path += [path for path in config.process.paths if path not in sys.path]
    try:
        run(config)
    except DriftlineError as error:
        log.error("%s", error, extra=event_fields("cannot-start", error=type(error).__name__))
        return CANNOT_START
    except BaseException as error:
        fields = event_fields("crashed", error=type(error).__name__)
        log.critical("an unexpected error ends %s", config.name, exc_info=True, extra=fields)
        return DIED
    return STOPPED
