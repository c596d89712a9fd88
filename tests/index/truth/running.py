"""What goes on beside a test, in a thread of its own."""

from __future__ import annotations

from threading import Thread


class Running:
    """`run` is what it does; `error`: what has ended it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._thread = Thread(target=self._guarded, name=name, daemon=True)

    def run(self) -> None:
        """Until it is over."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.error = error
