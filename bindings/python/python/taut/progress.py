"""Progress bars for long statements, in a terminal and in a notebook."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

#: Seconds until a bar is drawn. Shorter statements draw none.
_QUIET_SECONDS = 1.0


def reporter(enabled: bool | None) -> Callable[..., None] | None:
    """Returns the callback that draws progress bars, or `None` if there is no terminal or notebook to draw them in.

    The thread that waits for the statement calls the callback.
    """
    in_notebook = "ipykernel" in sys.modules
    if enabled is False or (enabled is None and not in_notebook and not (sys.stderr and sys.stderr.isatty())):
        return None
    return _Bars(in_notebook)


class _Bars:
    """Draws one progress bar at a time. A call takes the operation, rows done, and total rows or `None`.

    A call without arguments ends the bar at the end of a statement.
    """

    def __init__(self, in_notebook: bool) -> None:
        self._in_notebook = in_notebook
        self._bar: Any = None
        self._operation: str | None = None

    def __call__(self, operation: str | None = None, done: int = 0, total: int | None = None) -> None:
        if self._bar is not None and (operation is None or self._operation != operation):
            self._bar.close()
            self._bar = None
        if operation is None:
            return
        if self._bar is None:
            self._operation = operation
            self._bar = self._kind()(
                desc=operation, total=total, unit=" rows", unit_scale=True, delay=_QUIET_SECONDS, leave=False
            )
        self._bar.update(done - self._bar.n)

    def _kind(self) -> Any:
        """Returns the class of the bar: a widget in a notebook if `ipywidgets` is installed, otherwise text."""
        if self._in_notebook and importlib.util.find_spec("ipywidgets") is not None:
            from tqdm.notebook import tqdm as notebook_bar

            return notebook_bar
        from tqdm import tqdm

        return tqdm
