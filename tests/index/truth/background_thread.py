"""Base class of the background threads of a test."""

from __future__ import annotations

from threading import Thread


class BackgroundThread:
    """Thread that executes `run`. `error`: the exception that ended it, if any."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run_guarded, name=name, daemon=True)

    def run(self) -> None:
        """Run until the test stops the thread."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread ends."""
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the thread is still running."""
        return self._thread.is_alive()

    def _run_guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.error = error
