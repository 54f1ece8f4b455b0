"""The Atari studies: the paper's settings, how they are cut, and the smoke scale to the report."""

import html
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch
from replaced_options import replaced
from undrawn import undrawn

from valueshare import host_memory
from valueshare.envs import atari57, atari_protocol
from valueshare.errors import InvalidInput
from valueshare.experiments.study import Study, evaluation_steps, make_study
from valueshare.population import memory
from valueshare.population.presets import atari, atari_rmsprop, preset_for
from valueshare.runs.plan import difference, to_config
from valueshare.runs.planning import make_plan

Cli = Callable[..., tuple[int, str, str]]
OVERLAP = "the next action is chosen before the update of a step, because learning overlaps the environments"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def all_agents(study: Study) -> pl.DataFrame:
    return pl.concat(plan.agents for plan in study.runs.values())


# The settings


def test_the_dqn_family_has_the_papers_settings() -> None:
    settings, own = atari("ib-dqn")
    assert settings.steps == 200 * 250_000
    assert (settings.checkpoint_interval, settings.eval_interval) == (250_000, 250_000)
    assert (settings.eval_timesteps, settings.eval_episodes) == (125_000, 0)
    assert (settings.eval_epsilon, settings.eval_envs) == (0.001, 1)
    assert settings.eval_episode_limit is None  # the protocol's 27,000 steps
    assert (settings.hidden, settings.observation_scale) == ((512,), 1.0)
    assert (settings.clip_rewards, settings.reward_scale) == (True, 1.0)
    assert settings.atari_protocol == "machado-2018"
    assert (settings.batch_size, settings.replay_capacity) == (32, 1_000_000)
    assert (settings.learning_starts, settings.update_interval) == (50_000, 4)
    assert settings.target_update_interval == 2_500 * 4  # updates, in steps
    assert (settings.loss, settings.reduction) == ("half-squared", "sum")
    assert (settings.optimizer, settings.optimizer_epsilon) == ("adam", 1.5e-4)
    assert settings.adam_betas == (0.9, 0.999)
    assert (own.step_size, own.discount) == (6.25e-5, 0.99)
    assert (own.epsilon_start, own.epsilon_end, own.epsilon_steps) == (1.0, 0.01, 1_000_000)
    for name in ("dqn", "double-dqn", "dueling-dqn", "ib-double-dqn"):
        assert atari(name) == (settings, own)


def test_rdq_iqn_and_rmsprop_differ_where_the_paper_says() -> None:
    dqn, rdq, iqn, rmsprop = atari("dqn"), atari("rdq"), atari("ib-iqn"), atari_rmsprop()

    def differences(other: object, base: object) -> dict[str, object]:
        return {n: v for n, v in vars(other).items() if v != getattr(base, n)}

    assert differences(rdq.settings, dqn.settings) == {"reduction": "mean"}
    assert rdq.agent_settings == dqn.agent_settings
    assert rdq.agent_settings.beta == 0.001
    assert differences(iqn.settings, dqn.settings) == {
        "reduction": "mean",
        "optimizer_epsilon": 3.125e-4,
    }
    assert differences(iqn.agent_settings, dqn.agent_settings) == {"step_size": 5e-5}
    quantiles = iqn.settings.quantiles, iqn.settings.target_quantiles
    assert (*quantiles, iqn.settings.acting_quantiles) == (64, 64, 32)
    assert differences(rmsprop.settings, dqn.settings) == {
        "loss": "huber",
        "optimizer": "rmsprop",
        "optimizer_epsilon": 0.01,
    }
    assert rmsprop.settings.rmsprop_decay == 0.95
    assert differences(rmsprop.agent_settings, dqn.agent_settings) == {"step_size": 2.5e-4}


def test_a_game_finds_its_preset_by_any_name() -> None:
    assert preset_for("ALE/Pong-v5") == preset_for("pong") == atari("dqn")
    assert preset_for("Pong", ["iqn", "ib-iqn"]) == atari("iqn")
    assert preset_for("CartPole-v1", ["dqn", "iqn"]).settings.atari_protocol is None
    with pytest.raises(InvalidInput, match="dqn, iqn have different settings"):
        preset_for("Pong", ["dqn", "iqn"])
    with pytest.raises(InvalidInput, match="no `algorithm` is given: write at least one name"):
        preset_for("Pong", [])
    plan = make_plan("Pong", "ib-dqn", k=18, seeds=2)
    assert plan.settings == {"ALE/Pong-v5": atari().settings}
    assert plan.agents["step_size"].to_list() == [6.25e-5] * 2


# What the studies are made of, and how they are cut


def test_the_main_study_is_57_games_7_agents_and_5_seeds() -> None:
    study = make_study("atari57", "paper")
    agents = all_agents(study)
    assert agents.height == 57 * 7 * 5
    assert agents["env"].unique().sort().to_list() == [f"ALE/{game}-v5" for game in atari57()]
    counts = agents.group_by("algorithm", "k").len()
    assert set(counts["len"]) == {57 * 5}
    assert {(a, k) for a, k, _ in counts.rows()} == {
        *(("dqn", 0.0), ("dueling-dqn", 0.0), ("rdq", 0.0), ("iqn", 0.0)),
        *(("ib-dqn", 1.0), ("ib-dqn", 18.0), ("ib-iqn", 18.0)),
    }
    assert len(study.deviations) == 6  # the engine's own
    # DQN and IB-DQN are one run; those with settings or a network of their own are others.
    assert list(study.runs) == ["dqn", "dueling-dqn", "rdq", "iqn"]
    assert [plan.agents.height for plan in study.runs.values()] == [57 * 15, 57 * 5, 57 * 5, 57 * 10]


@pytest.mark.parametrize("most", [4, 16, 100])
def test_populations_are_at_most_as_large_as_wanted_and_hold_every_agent_once(most: int) -> None:
    for name in ("atari57", "atari-sensitivity", "atari-rmsprop", "atari-rdq-beta"):
        study = make_study(name, "paper", population_agents=most)
        tables = [spec.agents for plan in study.runs.values() for spec in plan.populations.values()]
        who = ["env", "algorithm", "k", "beta", "seed"]
        rows = pl.concat(tables).select(who)
        assert not rows.is_duplicated().any()
        assert set(rows.rows()) == set(all_agents(make_study(name, "paper")).select(who).rows())
        for plan in study.runs.values():  # as few as can be
            sizes = [spec.agents.height for spec in plan.populations.values()]
            assert max(sizes) <= most
            assert len(sizes) == -(-sum(sizes) // most)


def test_the_other_studies_are_the_papers() -> None:
    sensitivity = all_agents(make_study("atari-sensitivity", "paper"))
    assert sensitivity.height == 3 * 8 * 5
    assert sensitivity["k"].unique().sort().to_list() == [0, 1, 32, 64, 128, 256, 512, 1024]
    rmsprop = make_study("atari-rmsprop", "paper")
    assert all_agents(rmsprop).height == 55 * 2 * 3
    assert {s.optimizer for s in rmsprop.runs["dqn"].settings.values()} == {"rmsprop"}
    beta = all_agents(make_study("atari-rdq-beta", "paper"))
    assert beta.height == 5 * 5 * 5
    assert beta["algorithm"].unique().to_list() == ["rdq"]
    assert 0.001 in beta["beta"].to_list()


def test_k_is_the_number_of_actions_and_games_of_other_actions_stay_apart() -> None:
    protocol = "machado-2018-minimal"
    (plan,) = make_study("atari57", "smoke", env=("Pong", "Breakout"), atari_protocol=protocol).runs.values()
    by_game = {spec.label: set(spec.agents["k"]) for spec in plan.populations.values()}
    assert by_game == {"ALE/Pong-v5": {0.0, 6.0}, "ALE/Breakout-v5": {0.0, 4.0}}
    (full,) = make_study("atari57", "smoke", env=("Pong", "Breakout")).runs.values()
    (spec,) = full.populations.values()  # 18 actions in both: one population
    assert set(spec.agents["k"]) == {0.0, 18.0}


def test_options_replace_the_scales_own_and_every_deviation_is_said() -> None:
    study = make_study(
        "atari57",
        "paper",
        env=("pong",),
        seeds=8,
        steps=500_000,
        eval_interval=100_000,
        eval_timesteps=30_000,
        delayed_actor=True,
        algorithm=("dqn", "ib-dqn"),
        k=(18,),
    )
    (plan,) = study.runs.values()
    (spec,) = plan.populations.values()
    assert spec.agents.height == 16
    assert (spec.settings.steps, spec.settings.checkpoint_interval) == (500_000, 100_000)
    assert evaluation_steps(spec.settings) == 6 * 30_000  # before, and after each of 5 phases
    assert study.deviations == (
        "steps 500,000 instead of 50,000,000",
        "delayed actor on instead of off",
        "eval interval 100,000 instead of 250,000",
        "eval timesteps 30,000 instead of 125,000",
        "without dueling-dqn, rdq, iqn, ib-iqn",
        "1 of 57 games",
        "8 seeds instead of 5",
        "k of ib-dqn: 18 instead of 1, n",
        "an episode under way ends as truncated at the end of a phase, which makes a run resumable",
        OVERLAP,
        "batches are drawn with replacement",
        "frames are converted to grayscale before the maximum of two is taken, not after",
        "action gaps are measured on one batch instead of four",
        "there is an evaluation before the first step too",
    )


def test_quantiles_are_said_of_algorithms_that_have_some() -> None:
    for algorithms, said in ((("dqn", "ib-dqn"), 0), (("dqn", "iqn"), 3)):
        study = make_study("atari57", "smoke", algorithm=algorithms)
        assert sum("quantiles" in words for words in study.deviations) == said
        assert "eval episode limit 100 instead of none" in study.deviations


def test_other_algorithms_values_and_games_are_said() -> None:
    games = ("Pong", "AirRaid")  # AirRaid is none of the 57
    study = make_study("atari57", "paper", env=games, algorithm=("double-dqn", "dqn"))
    assert "without dueling-dqn, ib-dqn, rdq, iqn, ib-iqn" in study.deviations
    assert "with double-dqn, not in the paper's study" in study.deviations
    assert "2 games, not all of them the paper's 57" in study.deviations
    beta = make_study("atari-rdq-beta", "paper", beta=(0.001, 0.5))
    (said,) = (words for words in beta.deviations if "beta" in words)
    assert said == "beta: 0.001, 0.5 instead of 1e-05, 0.0001, 0.001, 0.01, 0.1"
    small = make_study("atari-sensitivity", "small")
    assert "k of ib-dqn: 0, 1, 32, 1024 instead of 0, 1, 32, 64, 128, 256, 512, 1024" in small.deviations


def test_what_the_paper_leaves_open_is_called_a_guess() -> None:
    def guesses(study: Study) -> list[str]:
        return [words for words in study.deviations if "guess" in words]

    (games,) = guesses(make_study("atari-rmsprop", "paper"))
    assert "all but Defender and Surround" in games
    (beta,) = guesses(make_study("atari-rdq-beta", "small"))
    assert "0.001 alone" in beta
    for name in ("atari57", "atari-sensitivity"):
        assert guesses(make_study(name, "paper")) == []
    # Games and values that somebody chose are not guesses of ours.
    assert guesses(make_study("atari-rmsprop", "paper", env=("Pong",))) == []
    assert guesses(make_study("atari-rdq-beta", "paper", beta=(0.001,))) == []


def test_whether_rewards_are_signs_is_the_protocols() -> None:
    plan = make_plan("Pong", "dqn", seeds=1, clip_rewards=True)
    assert plan.settings["ALE/Pong-v5"].clip_rewards
    with pytest.raises(InvalidInput, match="is the protocol's, machado-2018: leave it out"):
        make_plan("Pong", "dqn", seeds=1, clip_rewards=False)
    assert not make_plan("CartPole-v1", "dqn", seeds=1).settings["CartPole-v1"].clip_rewards


def test_the_digest_of_the_protocol_is_stored_and_compared() -> None:
    plan = make_plan(["Pong", "Breakout"], "dqn", seeds=1, atari_protocol="nature-2015")
    stored = to_config(plan)
    protocol = {"name": "nature-2015", "digest": atari_protocol("nature-2015").digest}
    assert stored["protocols"] == {"ALE/Pong-v5": protocol, "ALE/Breakout-v5": protocol}
    assert "protocols" not in to_config(make_plan("CartPole-v1", "dqn", seeds=1))
    changed = {**stored, "protocols": {"ALE/Pong-v5": {**protocol, "digest": "0" * 12}}}
    assert difference(changed, stored) is not None


# From the command to the report


def test_one_is_singular_in_a_plan(cli: Cli) -> None:
    few = ("--algorithm", "dqn", "--env", "Pong", "--seeds", 1, "--rate", "100", "--plan")
    code, text, _ = cli("reproduce", "atari57", "--scale", "smoke", *few)
    assert code == 0
    assert "ALE/Pong-v5: 1 agent in 1 population, 300 steps each" in text
    assert "atari57: 1 agent in all" in text
    assert "deviation: 1 seed instead of 5" in text


def test_smoke_trains_pong_from_the_command_to_the_report(tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "study"
    words = "reproduce atari57 --scale smoke --steps 240 --eval-interval 120 --eval-timesteps 100"
    command = (*words.split(), "--rate", "100", "--out", out)
    code, text, _ = cli(*command)
    for line in (" in 1 population, 240 steps each\n", "\nrun folder: ", "\nmemory: "):  # of one run
        assert text.count(line) == 1, text
    assert code == 0
    # 4 agents x (240 steps + 3 evaluations of 100) / 100 per second = 21.6 s.
    assert "ALE/Pong-v5: 4 agents in 1 population, 240 steps each" in text
    assert "0.4 minutes, evaluations included, at 100 agent-steps/s (as requested)" in text
    assert "Atari protocol machado-2018: " in text
    assert "no agent diverged" in text
    # What differs is one line here, and in full in the report.
    said = make_study("atari57", "smoke", steps=240, eval_interval=120, eval_timesteps=100).deviations
    assert text.count("deviation") == 1
    assert f"scale smoke: {len(said)} deviations, listed by --plan and in the report" in text
    assert json.loads((out / "report" / "report.json").read_text())["deviations"] == list(said)
    assert (out / "report" / "figures" / "learning-curves.png").stat().st_size > 1_000
    with undrawn():
        assert cli("report", out, "--resamples", "100")[0] == 0  # made again from the runs alone
    assert json.loads((out / "report" / "report.json").read_text())["deviations"] == list(said)
    shown = html.unescape((out / "report" / "report.html").read_text())
    assert "steps 240 instead of 50,000,000" in said
    assert all(sentence in shown for sentence in said)

    records = pl.concat(pl.read_parquet(p) for p in sorted((out / "dqn" / "records").iterdir()))
    assert sorted(records["step"].to_list()) == [0] * 4 + [120] * 4 + [240] * 4
    assert set(records["episodes"]) == {1}  # 100 steps, truncated at the 100th
    assert records["score"].is_between(-21, 21).all()
    assert records["overestimation"].is_not_null().all()
    after = records.filter(pl.col("step") > 0)
    assert after["relative_action_gap"].is_not_null().all()
    provenance = json.loads((out / "dqn" / "provenance.json").read_text())
    assert provenance["command"] == f"valueshare {words}"
    stored = json.loads((out / "dqn" / "config.json").read_text())
    assert stored["settings"]["ALE/Pong-v5"]["atari_protocol"] == "machado-2018"
    digest = atari_protocol("machado-2018").digest
    assert stored["protocols"]["ALE/Pong-v5"]["digest"] == digest
    manifests = sorted((out / "dqn" / "checkpoints" / "population-0").glob("checkpoint-*.json"))
    for path in manifests:
        fingerprint = json.loads(path.read_text())["fingerprint"]
        assert fingerprint["atari_protocol_digest"] == digest
    assert len(manifests) == 2
    table = (out / "report" / "tables" / "scores.md").read_text()
    assert "Pong" in table

    with undrawn():
        code, text, _ = cli(*command)  # once more: only the report is made again
    assert (code, "this run is finished" in text, "minutes" in text) == (0, True, False)
    code, _, err = cli(*command, "--atari-protocol", "nature-2015")
    assert (code, err.count("\n")) == (2, 1)
    assert "holds a run with other settings" in err


def test_a_plan_is_printed_and_nothing_is_run(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 200 * 10**9)
    out = tmp_path / "study"
    words = ("reproduce", "atari-sensitivity", "--scale", "paper", "--out", out, "--plan")
    code, text, _ = cli(*words, "--rate", "10000")
    assert (code, out.exists()) == (0, False)
    assert "120 agents in 1 population, split into 8, 50,000,000 steps each" in text
    # 120 agents x (50,000,000 + 201 x 125,000) / 10,000 per second.
    hours = 120 * (50_000_000 + 201 * 125_000) / 10_000 / 3_600
    assert f"120 agents in all, {hours:,.1f} hours" in text


# Bad input: one line, exit code 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "Pnog"], "there is no Atari game 'Pnog': did you mean Pong"),
        (["--atari-protocol", "nature"], "there is no Atari protocol 'nature'"),
        (["--atari-protocol", "machado-2018", "nature-2015"], "nature-2015"),
        (["--algorithm", "ddqn"], "there is no algorithm 'ddqn': it is called double-dqn here"),
        (["--algorithm", "rdq", "--k", "3"], "rdq have no k: leave --k out"),
        (["--groups", "-1"], "--groups -1: write at least 1"),
        (["--replay-device", "cuda"], "--replay-device cuda needs training on a CUDA device"),
        (["--population-agents", "-1"], "--population-agents -1"),
        (["--seeds", "-1"], "--seeds -1: "),
        (["--seeds", "0"], "--seeds 0: write a number >= 1"),
        (["--steps", "0"], ": --steps 0: write a number >= 1"),
        (["--eval-interval", "0"], "--eval-interval 0: "),
        (["--eval-timesteps", "0"], "--eval-timesteps 0: "),
        (["--replay-capacity", "0"], "--replay-capacity 0: "),
        (["--rate", "0"], "--rate 0: write agent-steps per second, or leave it out"),
        (["--out", "/dev/null"], "/dev/null/dqn: not a directory"),
        (["--rate", "-1"], "--rate -1: "),
        (["--steps", "-5"], ": --steps -5: write a number >= 1"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, cli: Cli, words: list[str], message: str) -> None:
    out = tmp_path / "study"
    code, _, err = cli(*replaced(["reproduce", "atari57", "--scale", "smoke", "--out", str(out)], words))
    assert (code, err.count("\n"), out.exists()) == (2, 1, False), err
    assert message in err


def test_more_agents_than_fit_are_refused_with_the_number_that_would(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 40 * 10**9)
    monkeypatch.setattr(host_memory, "resident_bytes", lambda: 600 * 10**6)
    words = [*("reproduce", "atari57", "--scale", "paper", "--algorithm", "dqn", "ib-dqn")]
    words += ["--out", str(tmp_path / "study")]
    code, text, err = cli(*words)
    assert (code, err.count("\n"), (tmp_path / "study").exists()) == (2, 1, False)
    assert "memory: does not fit" in text
    assert "agent-steps/s" not in text  # nothing is measured: it does not fit
    # 0.95 x 40 GB at 7.1 GB and a little an agent.
    assert "16 agents require" in err
    assert ": about 5 would fit" in err
    assert "would fit; write --population-agents 5, which keeps all settings and seeds; otherwise give fewer" in err
    assert cli(*words, "--population-agents", "5", "--rate", "1", "--plan")[0] == 0
    code, plan, last = cli(*words, "--plan")
    assert (code, last) == (2, err)
    assert "855 agents in 1 population, split into 54, 50,000,000 steps each" in plan
    assert "memory: does not fit" in plan
    assert "atari57: 855 agents in all" in plan
    code, plan, _ = cli(*words, "--plan", "--rate", "1000")
    assert (code, "at 1,000 agent-steps/s (as requested)" in plan) == (2, True)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 4 * 10**9)
    code, _, err = cli(*words)
    assert code == 2
    assert err.endswith(": 0 would fit; write a smaller --replay-capacity, or --replay-device disk\n")
