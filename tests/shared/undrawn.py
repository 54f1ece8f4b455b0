"""Reports without the drawing of figures, for tests of everything else in them."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from valueshare.report.figures import style

EMPTY = b'<svg xmlns="http://www.w3.org/2000/svg" width="1pt" height="1pt" viewBox="0 0 1 1"></svg>'


@contextmanager
def undrawn() -> Iterator[None]:
    """Figures are files of the usual names with an empty picture in them: a drawing takes about a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "_laid_out", lambda figure: nullcontext())
        patch.setattr(style, "_rendered", lambda figure, kind, box: EMPTY)
        yield
