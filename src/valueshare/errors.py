"""The one exception for input that its author can mend, and what others say in one line."""


class InvalidInput(ValueError):
    """Something the caller wrote is wrong; the message says what, and what to write instead.

    The command line prints it as one line and exits with 2. Everything else that is raised is a
    defect of this package or of the machine, and keeps its traceback.
    """


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__
