"""How a run goes on that an error has ended: the one sentence for it."""

IF_CODE = "; if that was the code of an operator, with --accept-changed-code"
"""To follow "the cause is mended": changed code is refused without it."""

ONCE_MENDED = f"The same command goes on, once the cause is mended{IF_CODE}"

OF_RECORDS = (
    "Mend it (blank lines are not counted as records) and run the same command again, or set such "
    "records aside: --on-error dead-letter (in Python dead_letters=True)."
)
"""What to do about a bad record."""
