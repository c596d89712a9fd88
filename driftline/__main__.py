"""The `driftline` command as ``python -m driftline``."""

from driftline import main

main()
