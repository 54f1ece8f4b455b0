"""Networks of one agent, as plain `torch.nn.Module`s."""

from valueshare.extras import install_command

try:
    import torch  # noqa: F401 (every module here does)
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the mean-expansion layer needs PyTorch: {install_command('torch')}", name="torch"
    ) from missing
