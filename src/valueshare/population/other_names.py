"""Names that others give to settings (Stable-Baselines3, RL Zoo, CleanRL, PFRL and Dopamine) and to algorithms."""

from collections.abc import Iterable

from valueshare.algorithm_info import ALGORITHM_INFO
from valueshare.errors import InvalidInput
from valueshare.text import suggestion

OTHER_NAMES = {  # of the arguments of `train`
    "env": ("env_id", "env_name", "environment", "environments", "envs", "game", "games"),
    "algorithm": ("alg", "algo", "algos", "algorithms", "agent_name", "method", "methods"),
    "seeds": ("n_seeds", "num_seeds", "agents", "n_agents", "num_agents"),
    "first_seed": ("seed", "random_seed"),
    "steps": ("total_timesteps", "timesteps", "n_timesteps", "total_steps", "num_steps", "max_steps"),
    "hidden": ("net_arch", "hidden_sizes", "hidden_size", "layers", "n_hidden_channels"),
    "step_size": ("learning_rate", "lr", "alpha", "step_sizes"),
    "discount": ("gamma", "discount_factor"),
    "optimizer_epsilon": ("adam_eps", "optimizer_eps", "adam_epsilon"),
    "replay_capacity": ("buffer_size", "replay_size", "memory_size", "replay_buffer_size"),
    "learning_starts": ("replay_start_size", "replay_start", "min_replay_history", "warmup", "start_steps"),
    "update_interval": ("train_freq", "train_frequency", "update_period", "update_frequency"),
    "gradient_steps": ("updates", "n_updates", "updates_per_step", "n_times_update"),
    "target_update_interval": (
        *("target_update", "target_network_frequency", "target_update_period", "target_update_freq"),
        *("target_update_frequency", "target_network_update_freq"),
    ),
    "batch_size": ("minibatch_size", "minibatch", "batch"),
    "epsilon_start": ("exploration_initial_eps", "start_e", "eps_start", "initial_epsilon"),
    "epsilon_end": (
        *("exploration_final_eps", "end_e", "eps_end", "final_epsilon", "epsilon_train"),
        *("eps", "epsilon", "exploration_rate"),
    ),
    "epsilon_steps": ("exploration_fraction", "epsilon_decay", "eps_decay", "final_exploration_frames"),
    "quantiles": ("n_quantiles", "num_tau_samples"),
    "eval_interval": ("eval_freq", "evaluation_interval"),
    "eval_episodes": ("n_eval_episodes", "eval_n_runs"),
    "eval_epsilon": ("epsilon_eval",),
    "eval_episode_limit": ("max_episode_steps", "episode_limit"),
    "log": ("tensorboard", "tensorboard_log", "wandb", "track"),
    "device": ("cuda", "gpu", "cpu"),
    "workers": ("n_jobs", "num_workers", "processes"),
    "population_agents": ("agents_at_once",),
    "out": ("output", "output_dir", "log_dir", "logdir", "outdir", "save_dir", "log_folder", "exp_name", "run_name"),
}
COMMAND_NAMES = {  # of other commands' arguments, tried after OTHER_NAMES
    "seeds": ("seed",),
    "seeds_from": ("seed", "seeds", "first_seed"),
    "seed": ("seeds", "first_seed", "seeds_from"),
    "agent": ("agents",),
    "episodes": ("n_eval_episodes", "eval_episodes"),
    "episode_limit": ("max_steps", "max_episode_steps", "eval_episode_limit"),
    "epsilon": ("eps", "eval_epsilon", "epsilon_eval", "exploration_rate", "epsilon_end"),
    "video": ("output", "out"),
}
_SCHEDULE = ", beside `epsilon_start` and `epsilon_steps`"
NOTES = {  # added to the advice for (their name, our name); backticks mark settings
    ("seed", "first_seed"): ", and `seeds = 1` makes it one agent",
    ("seed", "seeds"): ", and is how many there are",
    ("exploration_fraction", "epsilon_steps"): ", as a number of steps",
    ("eps", "epsilon_end"): _SCHEDULE,
    ("epsilon", "epsilon_end"): _SCHEDULE,
    ("seeds", "seeds_from"): ", and is the first of them; `episodes` is how many there are",
    ("seeds", "seed"): ", and is one number",
    ("cuda", "device"): ", as in `device = 'cuda'`",
    ("gpu", "device"): ", as in `device = 'cuda'`",
    ("cpu", "device"): ", as in `device = 'cpu'`",
}
_ONE_STEP = "n-step returns are not supported; all targets are one-step"
_SOFT = "soft target updates are not supported; every `target_update_interval` steps, all weights are copied"
_NO_CLIPPING = "gradients are not clipped; `loss = 'huber'` limits those of large errors"
_NEW_FOLDER = "nothing is replaced; a new run needs another `out`"
_RESUMES = "valueshare resume continues the run in a folder"
UNSUPPORTED_OPTIONS = {  # advice for options without an equivalent, if the command has the settings in backticks
    "callback": "write `callbacks`, a list of functions of (records, run)",
    "n_actions": "the environment sets the number of actions",
    "num_envs": "every agent trains in one environment, and `seeds` is the number of agents",
    "n_envs": "every agent trains in one environment, and `seeds` is the number of agents",
    "double": "write `algorithm = 'double-dqn'`",
    "double_q": "write `algorithm = 'double-dqn'`",
    "dueling": "write `algorithm = 'dueling-dqn'`",
    **dict.fromkeys(("tau", "polyak", "polyak_tau"), _SOFT),
    **dict.fromkeys(("grad_clip", "clip_grad", "clip_grad_norm", "gradient_clip", "max_grad_norm"), _NO_CLIPPING),
    **dict.fromkeys(("overwrite", "force"), _NEW_FOLDER),
    **dict.fromkeys(("resume", "restart", "continue", "load", "checkpoint"), _RESUMES),
    "n_step": _ONE_STEP,
    "nstep": _ONE_STEP,
    "n_steps": _ONE_STEP,
    "n_step_returns": _ONE_STEP,
    "multi_step": _ONE_STEP,
    "update_horizon": _ONE_STEP,
    "render": "valueshare play makes a video of a trained agent",
    "capture_video": "valueshare play makes a video of a trained agent",
}
OTHER_ALGORITHMS = {
    "dqn": ("nature-dqn", "vanilla-dqn", "deep-q-network"),
    "double-dqn": ("ddqn", "double", "double-q", "double-q-learning"),
    "dueling-dqn": ("dueling", "duel-dqn", "dueling-network"),
    "iqn": ("implicit-quantile-network", "implicit-quantile"),
}
UNSUPPORTED_ALGORITHMS = {  # never corrected to a supported one with a similar name
    *("d3qn", "dddqn", "dueling-double-dqn", "dueling-ddqn", "double-dueling-dqn"),
    *("qr-dqn", "qrdqn", "fqf", "c51", "rainbow", "noisy-dqn", "m-dqn", "munchausen-dqn", "drqn", "nfq"),
    *("ppo", "trpo", "a2c", "a3c", "sac", "td3", "ddpg", "sarsa"),
} - ALGORITHM_INFO.keys()


def canonical_name(other: str, known: Iterable[str] | None = None) -> str | None:
    """The setting with this name in another library, if it is in `known` (None: any argument of `train`)."""
    tables = (OTHER_NAMES,) if known is None else (OTHER_NAMES, COMMAND_NAMES)
    wanted = None if known is None else set(known)
    found = (ours for table in tables for ours, others in table.items() if other in others)
    return next((ours for ours in found if wanted is None or ours in wanted), None)


def other_name_advice(name: str, ours: str | None) -> str:
    """Advice for another library's name: its equivalent `ours`, or why there is none (None); "" if unknown."""
    if ours is None:
        return UNSUPPORTED_OPTIONS.get(name, "")
    return f"it is called `{ours}` here{NOTES.get((name, ours), '')}"


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuse an unknown name, and suggest similar ones."""
    if name not in (known := list(known)):
        advice = near = ""
        if kind == "setting":
            advice = other_name_advice(name, canonical_name(name))
        elif kind == "algorithm":
            found = (ours for ours, others in OTHER_ALGORITHMS.items() if name in others and ours in known)
            advice = next((f"it is called {ours} here" for ours in found), "")
        if not (kind == "algorithm" and name in UNSUPPORTED_ALGORITHMS):
            near = suggestion(name.lower(), known, 2)
        hint = advice or near or f"write one of {', '.join(known)}"
        raise InvalidInput(f"there is no {kind} {name!r}: {hint}")
