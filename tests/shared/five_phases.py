"""Settings of a run of five phases, for tests of checkpoints."""

from valueshare.population.settings import AgentSettings, TrainingSettings

FIVE_PHASES = TrainingSettings(
    steps=150,
    checkpoint_interval=30,
    eval_interval=30,
    hidden=(16,),
    batch_size=8,
    replay_capacity=70,  # smaller than the run, and no multiple of a phase
    learning_starts=10,
    update_interval=2,
    target_update_interval=10,
    eval_episodes=2,
    eval_envs=2,
    eval_episode_limit=20,
)
SHORT_EXPLORATION = AgentSettings(epsilon_steps=50)
