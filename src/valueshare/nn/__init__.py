"""Networks of one agent, as plain `torch.nn.Module`s."""
