"""A process that delivers bundles until it is killed: ``python -m ... KIND DIRECTORY COUNT``."""

import sys
from pathlib import Path

from tests.connectors.sinks.bundles import BARRIER, GROUPS, OPEN, stream

if __name__ == "__main__":
    kind, directory, count = sys.argv[1:]
    consumer = OPEN[kind](Path(directory))
    print("ready", flush=True)
    t_last = consumer.last(BARRIER, GROUPS).t_last
    for bundle in stream(int(count)):
        if bundle.t_last > t_last:
            consumer.deliver(bundle)
            print(bundle.t_last, flush=True)
