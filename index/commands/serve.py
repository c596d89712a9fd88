"""The command `driftline serve`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace
from rich.console import Console
from starlette.types import ASGIApp

from driftline.connectors.outputs import require_utf8
from driftline.deploy.cluster.wheels import importable_wheel
from driftline.deploy.commands.cluster_options import (
    ClusterAddress,
    optionally_in_cluster,
    transport_options_with,
)
from driftline.deploy.commands.options import logging_options
from driftline.deploy.local.config import SenderRules, check_input
from driftline.deploy.runtime.logs import restore_logging
from driftline.deploy.runtime.sockets.listening import check_free
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.errors import FlowError
from driftline.engine.events import event_fields, log
from driftline.engine.flow.loading import load_flow
from driftline.engine.ui.options import refuse_options
from driftline.index.commands.definition import (
    WHEEL_FLOW,
    define,
    pin_searcher_count,
    schema_in,
    views_of,
    write_wheel,
)
from driftline.index.http.application import application
from driftline.index.http.page import page_routes
from driftline.serve.gateway.backend import Backend
from driftline.serve.gateway.server import ListenAddress, open_listener
from driftline.serve.hosting.config import ViewSpec, key_value_views
from driftline.serve.http.access import Access, check_exposure
from driftline.serve.http.flow_application import flow_application
from driftline.serve.http.operations import HttpSettings
from driftline.serve.running.cluster_deployment import ServiceCluster
from driftline.serve.running.deployment import Deploy, ServiceOptions, deploy_locally
from driftline.serve.running.run import run_service

DEFAULT_STATES = "driftline-index", "driftline-service"
"""Default of --state: for the index, and for a FLOW."""


CLUSTER_OPTIONS = "--name", "--wheel", "--journal-key", "--bind", "--advertise"
"""Options that only a service on a cluster accepts."""


class HostPort(click.ParamType[tuple[str, int]]):
    """Click parameter type HOST:PORT."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, such as 127.0.0.1:8080", param, ctx)
        return host.strip("[]"), int(port)


@click.command()
@click.argument("flow", required=False)
@click.option("--http", default="127.0.0.1:8080", show_default=True, type=HostPort(),
              metavar="HOST:PORT", help="Address to listen on for HTTP; port 0 takes a free port.",
              )  # fmt: skip
@click.option("--zmq", default="", metavar="ADDRESS",
              help="Also listen for producers over ZeroMQ, such as at tcp://127.0.0.1:5555.",
              )  # fmt: skip
@click.option("--state", type=click.Path(path_type=Path, resolve_path=True), metavar="DIR",
              help="Directory for all durable data.  "
              "[default: driftline-index; with a FLOW: driftline-service]")  # fmt: skip
@click.option("--nodes", type=click.IntRange(1, 64),
              help="Node processes.  [default: 1, or those of the existing service]")  # fmt: skip
@click.option("--searchers", type=click.IntRange(1, 64),
              help="Shards of the index, one process each. The number is fixed when the index is "
              "created.  [default: 1, or that of the existing index]")  # fmt: skip
@click.option("--schema", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              metavar="FILE", help="The collections and their fields, as TOML.  "
              "[default: one collection with the text fields title and text]")  # fmt: skip
@click.option("--tokens", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              metavar="FILE", help="Access tokens; required if --http can be reached from other "
              "machines. The file is reloaded when it changes.",
              )  # fmt: skip
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False),
              metavar="FILE", help="TLS certificate for HTTPS, as PEM; needs --key.")  # fmt: skip
@click.option("--key", type=click.Path(exists=True, dir_okay=False),
              metavar="FILE", help="Private TLS key of --certificate, as PEM.")  # fmt: skip
@click.option("--snapshot-interval-ms", default=1000, show_default=True,
              type=click.IntRange(1, 3_600_000), help="Interval between snapshots of the nodes.",
              )  # fmt: skip
@click.option("--retain-mb", type=click.IntRange(1),
              help="Size limit of the journal in MiB. What a restart needs is always retained.  "
              "[default: unlimited]")  # fmt: skip
@click.option("--accept-changed-code", is_flag=True,
              help="Resume although the code of operators has changed. Existing state and outputs "
              "are kept.",
              )  # fmt: skip
@optionally_in_cluster
@transport_options_with(
    "Keys made by `driftline keys`: only producers with a right to the source can send to --zmq "
    "tcp://. On a cluster: the key file of this host; the file `authorised` is in the same "
    "directory."
)
@click.option("--name", default="", metavar="NAME",
              help="On a cluster: the name of the service and of its flow. Keep it across restarts."
              "  [default: HOST-serve]")  # fmt: skip
@click.option("--journal-key",
              type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
              metavar="FILE", help="On a cluster with --keys: the key file of a consumer for "
              "the journal, made by `driftline keys DIR --consumer journal=*`.")  # fmt: skip
@click.option("--wheel", metavar="FILE",
              type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="On a cluster: a pure Python wheel that contains FLOW; it is sent to all hosts.",
              )  # fmt: skip
@logging_options
def serve(
    console: Console,
    flow: str | None,
    http: tuple[str, int],
    zmq: str,
    state: Path | None,
    nodes: int | None,
    searchers: int | None,
    schema: Path | None,
    tokens: Path | None,
    certificate: str | None,
    key: str | None,
    snapshot_interval_ms: int,
    retain_mb: int | None,
    accept_changed_code: bool,
    cluster_address: ClusterAddress | None,
    network: TransportConfig,
    name: str,
    journal_key: Path | None,
    wheel: Path | None,
) -> None:
    """Serve a search index, or the latest values of any FLOW, over HTTP.

    \b
    driftline serve
    curl -X PUT localhost:8080/documents/1 -d '{"text": "A cat sat here."}'
    curl 'localhost:8080/search?q=cat'

    A document can be found some milliseconds after it was put. Each write is applied exactly once,
    even if processes are killed. The `at` of an answer is the label of the state that it was read
    from; at=LABEL reads that state again.

    With a FLOW, as in `driftline run`, there is POST /records for its source, GET
    /views/SINK/KEY for the latest value of a key among the outputs of a sink, and GET /changes.

    The same command resumes after any interruption. SIGTERM or Ctrl-C stops it after all accepted
    records have been processed.

    With --zookeeper the service runs on that cluster: agents run the master and the nodes, and
    `driftline stop NAME`, `rescale` and `status` apply to the service, too. Use the same --state at
    each start.
    """
    if bool(certificate) != bool(key):
        raise click.UsageError("--certificate and --key must be given together")
    if flow is not None and (schema is not None or searchers is not None):
        raise click.UsageError(
            "--schema and --searchers cannot be given with FLOW: they are for the index, which has "
            "its own flow"
        )
    if cluster_address is None:
        refuse_options(
            CLUSTER_OPTIONS, "without a cluster: give its ZooKeeper servers, --zookeeper HOSTS"
        )
    elif flow is None and wheel is not None:
        raise click.UsageError(
            "--wheel cannot be given without FLOW: the index builds its own wheel from the schema"
        )
    access = None if tokens is None else Access(tokens)
    check_exposure(http[0], access, is_encrypted=certificate is not None)
    state = state or Path(DEFAULT_STATES[flow is not None]).absolute()
    require_utf8(state)
    settings = HttpSettings(access)
    load = _load_index if flow is None else partial(_load_flow_service, flow)
    keys = Path(network.keys) if network.keys else None
    sender_rules = SenderRules(keys=keys, sources=("writes",))
    with ExitStack() as stack:
        # Check ports and addresses first, so that a failure leaves no new state directory behind.
        listener, address = open_listener(ListenAddress(*http, certificate or "", key or ""))
        stack.callback(listener.close)
        if zmq:
            check_input(0, zmq, sender_rules)
            check_free(zmq)
        cluster = None
        if cluster_address is not None:
            tree = stack.enter_context(cluster_address.open_tree())
            service_name = name or f"{socket.gethostname()}-serve"
            cluster = ServiceCluster(
                tree, service_name, network, cluster_address.session_s, journal_key, wheel
            )
            cluster.check()
        stack.enter_context(importable_wheel(wheel))
        options = ServiceOptions(
            *load(state, schema, searchers, settings),
            state=state,
            listen_address=address,
            producers=zmq,
            sender_rules=sender_rules,
            nodes=nodes,
            snapshot_interval_s=snapshot_interval_ms / 1000,
            retained_bytes=None if retain_mb is None else retain_mb << 20,
            accept_changed_code=accept_changed_code or flow is None,
        )
        log.info(
            "the state directory is %s",
            state.absolute(),
            extra=event_fields("state", path=str(state)),
        )
        deploy: Deploy = deploy_locally
        if cluster is not None:
            if flow is None:
                cluster = replace(cluster, wheel=write_wheel(state))
                stack.enter_context(importable_wheel(cluster.wheel))
                options = replace(options, flow=WHEEL_FLOW)
            deploy = cluster.deploy
        if run_service(options, listener, _report_ready, deploy):
            text = "drained: run the same command again to resume"
        else:
            text = "cancelled by a command: accepted records are processed when the service resumes"
        log.info(text, extra=event_fields("service-ended"))


def _report_ready(address: ListenAddress) -> None:
    click.echo(f"ready: {address.url}")


_ServiceParts = tuple[str, tuple[ViewSpec, ...], Callable[[Backend], ASGIApp]]
"""Name of the flow, its views, and the factory of the HTTP application."""


def _load_index(
    state: Path, schema: Path | None, searchers: int | None, settings: HttpSettings
) -> _ServiceParts:
    """Create or load the index in a state directory."""
    name = define(state, schema)
    views = views_of(state, pin_searcher_count(state, searchers))
    return name, views, partial(_index_application, state, settings)


def _index_application(state: Path, settings: HttpSettings, backend: Backend) -> ASGIApp:
    return application(backend, schema_in(state), settings, page_routes())


def _load_flow_service(
    flow: str, state: Path, schema: Path | None, searchers: int | None, settings: HttpSettings
) -> _ServiceParts:
    """Load a flow of the user; `state`, `schema` and `searchers` are not used."""
    loaded = load_flow(flow)
    restore_logging()
    if len(loaded.sources) != 1:
        raise FlowError(
            f"{flow} has {len(loaded.sources)} sources: a service needs a flow with one source"
        )
    sinks = [sink.name for sink in loaded.sinks]
    app = partial(_flow_application, sinks, settings)
    return flow, key_value_views(loaded), app


def _flow_application(sinks: list[str], settings: HttpSettings, backend: Backend) -> ASGIApp:
    return flow_application(backend, sinks, settings)
