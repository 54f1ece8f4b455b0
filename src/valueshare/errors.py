"""The one exception for input that its author can mend."""


class InvalidInput(ValueError):
    """Something the caller wrote is wrong; the message says what, and what to write instead.

    The command line prints it as one line and exits with 2. Everything else that is raised is a
    defect of this package or of the machine, and keeps its traceback.
    """
