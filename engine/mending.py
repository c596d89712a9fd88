"""How a run goes on that an error has ended: the one sentence for it."""

IF_CODE = "; if that was the code of an operator, with --accept-changed-code"
"""To follow "the cause is mended": changed code is refused without it."""

ONCE_MENDED = f"The same command goes on, once the cause is mended{IF_CODE}"
