"""Names that other libraries give to settings: Stable-Baselines3, RL Zoo, CleanRL, PFRL and Dopamine."""

from collections.abc import Iterable

from valueshare.errors import InvalidInput
from valueshare.text import suggestion

OTHER_NAMES = {
    "env": ("env_id", "environment", "game", "env_name"),
    "algorithm": ("algo", "agent_name"),
    "steps": ("total_timesteps", "timesteps", "n_timesteps", "total_steps", "num_steps"),
    "hidden": ("net_arch", "hidden_sizes", "hidden_size", "layers", "n_hidden_channels"),
    "step_size": ("learning_rate", "lr", "alpha"),
    "discount": ("gamma", "discount_factor"),
    "optimizer_epsilon": ("adam_eps", "optimizer_eps", "adam_epsilon"),
    "replay_capacity": ("buffer_size", "replay_size", "memory_size", "replay_buffer_size"),
    "learning_starts": ("replay_start_size", "replay_start", "min_replay_history", "warmup", "start_steps"),
    "update_interval": ("train_freq", "train_frequency", "update_period", "update_frequency"),
    "target_update_interval": ("target_network_frequency", "target_update_period", "target_update_freq"),
    "batch_size": ("minibatch_size", "minibatch"),
    "epsilon_start": ("exploration_initial_eps", "start_e", "eps_start"),
    "epsilon_end": ("exploration_final_eps", "end_e", "eps_end", "final_epsilon", "epsilon_train"),
    "epsilon_steps": ("epsilon_decay", "eps_decay", "final_exploration_frames"),
    "quantiles": ("n_quantiles", "num_tau_samples"),
    "eval_interval": ("eval_freq", "evaluation_interval"),
    "eval_episodes": ("n_eval_episodes", "eval_n_runs"),
    "eval_epsilon": ("epsilon_eval",),
    "log": ("tensorboard", "tensorboard_log", "wandb", "track"),
    "out": ("output", "output_dir", "log_dir", "logdir", "outdir", "save_dir", "log_folder"),
}


def canonical_name(other: str) -> str | None:
    """The setting that another library calls so."""
    return next((ours for ours, others in OTHER_NAMES.items() if other in others), None)


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not among those known, with the ones that are near."""
    if name not in (known := list(known)):
        if kind == "setting" and (ours := canonical_name(name)) is not None:
            raise InvalidInput(f"there is no setting {name!r}: it is called {ours!r} here")
        hint = suggestion(name.lower(), known, 2) or f"write one of {', '.join(known)}"
        raise InvalidInput(f"there is no {kind} {name!r}: {hint}")
