"""``python -m driftline`` is the `driftline` command."""

from driftline import main

main()
