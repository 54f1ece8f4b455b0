"""QR-DQN of sb3-contrib with the mean-expansion layer, on CartPole-v1."""

from cartpole import ENV, evaluate, options
from sb3_contrib import QRDQN

from valueshare.integrations.sb3_contrib import QRDQNPolicy


def train(args):
    model = QRDQN(
        QRDQNPolicy,
        ENV,
        policy_kwargs={"k": args.k, "net_arch": [256, 256], "n_quantiles": 10},
        learning_rate=2.3e-3,  # this and what follows: RL Baselines3 Zoo
        batch_size=64,
        buffer_size=100_000,
        learning_starts=args.learning_starts,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        seed=args.seed,
        device="cpu",
    )

    def after_step(*_):
        # The last of the 256 steps between updates may lie beyond args.steps.
        if model.num_timesteps % args.eval_interval == 0 and model.num_timesteps <= args.steps:
            evaluate(
                lambda observation: model.predict(observation, deterministic=True)[0],
                args,
                model.num_timesteps,
                algorithm="ib-qrdqn",
            )
        return True

    model.learn(args.steps, callback=after_step)
    return model.quantile_net, model.quantile_net_target


if __name__ == "__main__":
    train(options(__doc__))
