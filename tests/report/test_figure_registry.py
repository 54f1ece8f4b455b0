"""The figures that results allow, and those that are refused."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from synthetic import (
    ALGORITHMS,
    synthetic_results,
)

from valueshare.analysis.importers.results import Results, Source, read_results
from valueshare.analysis.scores import atari_baselines
from valueshare.errors import InvalidInput
from valueshare.report.data import report_data
from valueshare.report.figure_registry import FIGURES, draw_figures, unmet_needs
from valueshare.report.figures.style import _laid_out, rendered

FEW = 200  # resamples


def figures_for(results: Results, names: Sequence[str] = (), *, resamples: int = FEW) -> dict[str, Figure]:
    return {one.name: one.figure for one in draw_figures(report_data(results, resamples), names)}


def results(table: pl.DataFrame) -> Results:
    return Results(table, (), ())


@pytest.fixture(scope="module")
def atari() -> Results:
    return results(synthetic_results(3, 2, 4).drop("source"))


def sweep(env: str = "LunarLander-v3") -> pl.DataFrame:
    rows = [
        (env, "ib-dqn", k, seed, step, k + seed + step / 100, 0.1 * k, 0.2)
        for k in (0.0, 4.0, 64.0)
        for seed in range(3)
        for step in (0, 100, 200)
    ]
    columns = ["env", "algorithm", "k", "seed", "step", "score", "overestimation"]
    return pl.DataFrame(rows, [*columns, "relative_action_gap"], orient="row")


def test_the_figures_of_an_atari_study(atari: Results) -> None:
    drawn = figures_for(atari, resamples=FEW)
    assert list(drawn) == [
        *("iqm", "performance-profile", "auc-change", "overestimation-reduction"),
        *("action-gap-increase", "sensitivity"),
        *("learning-curves", "overestimation-curves", "geometry"),
    ]
    assert set(unmet_needs(report_data(atari))) == set(FIGURES) - set(drawn)
    labels = [line.get_label() for line in drawn["iqm"].axes[0].lines]
    assert {"DQN", "IB-DQN(n)", "IB-IQN(n)"} < set(labels)


def test_the_changes_are_those_of_the_runs(atari: Results) -> None:
    """Bars against naive arithmetic: the pair is DQN and IB-DQN(n), not IB-DQN(1)."""
    figures = figures_for(atari, ["auc-change", "overestimation-reduction", "action-gap-increase"], resamples=FEW)
    base = {row["game"]: row for row in atari_baselines().to_dicts()}

    def mean(env: str, algorithm: str, k: float, column: str) -> float:
        own = atari.table.filter((pl.col("env") == env) & (pl.col("algorithm") == algorithm) & (pl.col("k") == k))
        return float(np.mean(own[column].to_numpy()))

    def bars(name: str) -> dict[str, float]:
        (axes,) = figures[name].axes
        envs = [label.get_text() for label in axes.get_yticklabels()]
        widths = [float(bar.get_width()) for bar in axes.patches]  # type: ignore[attr-defined]
        return dict(zip(envs, widths, strict=True))

    for env in ("Alien", "Amidar", "Assault"):
        scale = base[env]["human"] - base[env]["random"]
        plain, layer = (mean(env, a, k, "score") for a, k in (("dqn", 0.0), ("ib-dqn", 18.0)))
        assert bars("auc-change")[env] == pytest.approx((layer - plain) / scale)
        plain, layer = (mean(env, a, k, "overestimation") for a, k in (("dqn", 0.0), ("ib-dqn", 18.0)))
        reduction = 100 * (plain - layer) / abs(plain)
        assert bars("overestimation-reduction")[env] == pytest.approx(reduction)
        plain, layer = (mean(env, a, k, "relative_action_gap") for a, k in (("dqn", 0.0), ("ib-dqn", 18.0)))
        assert bars("action-gap-increase")[env] == pytest.approx(min(layer - plain, 0.01))


def test_a_sweep_over_k_on_one_environment() -> None:
    drawn = {one.name: one for one in draw_figures(report_data(results(sweep()), FEW))}
    assert list(drawn) == [
        *("sensitivity", "overestimation-against-k", "action-gap-against-k"),
        *("learning-curves", "overestimation-curves", "geometry"),
    ]
    line = drawn["sensitivity"].figure.axes[0].lines[-1]
    # The mean of k + seed + step/100: seeds 0, 1, 2 and steps 0, 100, 200 add 1 each.
    assert list(np.asarray(line.get_ydata(orig=True))) == pytest.approx([2.0, 6.0, 66.0])


def test_dqn_is_the_sweeps_k_0() -> None:
    plain = pl.col("k") == 0
    named = sweep("Pong").with_columns(algorithm=pl.when(plain).then(pl.lit("dqn")).otherwise("algorithm"))
    (axes,) = figures_for(results(named), ["sensitivity"])["sensitivity"].axes
    assert list(np.asarray(axes.lines[0].get_xdata(orig=True))) == [0.0, 4.0, 64.0]


def test_runs_that_differ_in_a_setting_are_told_apart() -> None:
    two = pl.concat([sweep().with_columns(step_size=pl.lit(size)) for size in (0.1, 0.2)])
    own = two.filter(pl.col("k") == 4.0)
    figure = figures_for(results(own), ["learning-curves"], resamples=FEW)["learning-curves"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["IB-DQN(4) with step size 0.1", "IB-DQN(4) with step size 0.2"]


def test_two_optimizers_are_two_learners() -> None:
    own = sweep().filter(pl.col("k") == 4.0)
    both = pl.concat([own.with_columns(optimizer=pl.lit(name)) for name in ("adam", "RMSprop")])
    for optimizers in (["adam", "RMSprop"], ["adam", "sgd"]):
        named = both.with_columns(pl.col("optimizer").replace("RMSprop", optimizers[1]))
        found = report_data(results(named), FEW)
        assert found.main.height == both.height  # of no Atari game any is kept apart
        labels = [variant.style.label for variant in found.variants]
        assert labels == sorted(f"IB-DQN(4) with optimizer {name.lower()}" for name in optimizers)
    told = own.with_columns(optimizer=pl.lit("adam"))
    untold = own.with_columns(optimizer=pl.lit(None, pl.String), seed=pl.col("seed") + 9)
    assert len(report_data(results(pl.concat([told, untold])), FEW).variants) == 1  # it may be Adam


def test_a_dollar_in_a_name_is_a_dollar() -> None:
    """Matplotlib would read a formula, or stop at a bad one."""
    table = sweep("$x_1$").with_columns(algorithm=pl.lit("$\\frac$"))
    figure = figures_for(results(table), ["learning-curves"], resamples=FEW)["learning-curves"]
    assert all(rendered(figure).values())


def test_the_profile_is_the_share_of_runs_above(atari: Results) -> None:
    (axes,) = figures_for(atari, ["performance-profile"], resamples=FEW)["performance-profile"].axes
    (line,) = (line for line in axes.lines if line.get_label() == "IB-DQN(n)")
    own = atari.table.filter(algorithm="ib-dqn", k=18.0)
    ends = own.sort("step").group_by("env", "seed").agg(pl.col("score").tail(3).mean())
    base = {row["game"]: row for row in atari_baselines().to_dicts()}
    scores = np.array(
        [(s - base[e]["random"]) / (base[e]["human"] - base[e]["random"])
         for e, s in ends.select("env", "score").iter_rows()]
    )  # fmt: skip
    for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):  # type: ignore[arg-type]
        assert y == pytest.approx((scores > x).mean())


def test_a_game_that_has_not_come_so_far_ends_the_curve(atari: Results) -> None:
    """DQN lacks the last evaluation of one game: no IQM of the others stands in for it."""
    table = atari.table
    last, game = int(table["step"].to_numpy().max()), table["env"][0]
    gone = (pl.col("algorithm") == "dqn") & (pl.col("env") == game) & (pl.col("step") == last)
    ragged = results(table.filter(~gone))
    (drawn,) = draw_figures(report_data(ragged, FEW), ["iqm"])
    lines = {str(line.get_label()): line for line in drawn.figure.axes[0].lines}
    assert max(np.asarray(lines["DQN"].get_xdata(orig=True))) < last
    assert max(np.asarray(lines["IB-DQN(n)"].get_xdata(orig=True))) == last
    assert any("1 points are over fewer than its 3 environments" in note for note in drawn.notes)
    (profile,) = draw_figures(report_data(ragged, FEW), ["performance-profile"])
    names = [text.get_text() for text in profile.figure.axes[0].get_legend().get_texts()]  # type: ignore[union-attr]
    assert "DQN, 2 of 3 games" in names
    # The bars are of all three games, at the evaluations that both have.
    (bars,) = draw_figures(report_data(ragged, FEW), ["auc-change"])
    assert len(bars.figure.axes[0].patches) == 3
    assert any(f"{game} 3 of 4" in note for note in bars.notes)


def test_the_caption_says_how_much_sooner(atari: Results) -> None:
    (drawn,) = draw_figures(report_data(atari, FEW), ["iqm"])
    found = re.findall(r"(\S+) reaches the best of (\S+) at (\S+) \[(\S+), (\S+)\] of", drawn.caption)
    assert [pair[:2] for pair in found] == [("IB-DQN(n)", "DQN"), ("IB-IQN(n)", "IQN")]


def test_rmsprop_runs_have_a_figure_of_their_own() -> None:
    """The optimiser is a column of the results, whether they are of a run folder or of a table."""
    table = synthetic_results(3, 2, 4).with_columns(source=pl.lit("adam"), optimizer=pl.lit("adam"))
    slow = table.filter(pl.col("algorithm").is_in(["dqn", "ib-dqn"])).with_columns(
        source=pl.lit("rms"), optimizer=pl.lit("RMSprop"), score=pl.col("score") - 1
    )
    both = Results(pl.concat([table, slow]), (), ())
    drawn = figures_for(both, ["iqm", "iqm-rmsprop"], resamples=FEW)
    alone = figures_for(Results(table, (), ()), ["iqm"], resamples=FEW)["iqm"]

    def lines(name: str) -> dict[str, list[float]]:
        found = alone if name == "alone" else drawn[name]
        return {
            str(line.get_label()): np.asarray(line.get_ydata(orig=True)).tolist()
            for line in found.axes[0].lines
            if not str(line.get_label()).startswith("_")
        }

    assert lines("iqm") == lines("alone")  # without those of RMSprop
    assert set(lines("iqm-rmsprop")) == {"DQN", "IB-DQN(1)", "IB-DQN(n)"}
    assert lines("iqm-rmsprop")["DQN"] != lines("iqm")["DQN"]


def test_rmsprop_runs_of_a_tidy_table(tmp_path: Path) -> None:
    table = synthetic_results(2, 2, 3).drop("source")
    both = [table.with_columns(optimizer=pl.lit(name)) for name in ("Adam", "RMSprop")]
    pl.concat(both).write_csv(tmp_path / "both.csv")
    found = report_data(read_results(tmp_path / "both.csv"), FEW)
    assert "iqm-rmsprop" not in unmet_needs(found)
    assert found.main.height == table.height  # Adam's
    both[0].write_csv(tmp_path / "adam.csv")
    needs = unmet_needs(report_data(read_results(tmp_path / "adam.csv"), FEW))
    assert needs["iqm-rmsprop"] == "runs with RMSprop beside others"


@pytest.mark.parametrize(("protocol", "label"), [("machado-2018", "IB-DQN(n)"), ("nature-2015", "IB-DQN(18)")])
def test_18_is_n_only_where_games_have_all_actions(protocol: str, label: str) -> None:
    table = synthetic_results(2, 1, 2).drop("source")
    settings = {env: {"atari_protocol": protocol} for env in table["env"].unique()}
    source = Source("run", "run", 1, {"settings": settings}, None)
    figure = figures_for(Results(table, (), (source,)), ["learning-curves"], resamples=FEW)
    names = [text.get_text() for text in figure["learning-curves"].legends[0].get_texts()]
    assert label in names


@pytest.mark.parametrize("protocol", [{"sticky": 0.25}, ["machado-2018"], 3])
def test_a_protocol_that_is_no_name_is_one_without_fewer_actions(protocol: object) -> None:
    """Files of other programs may have any JSON value there."""
    table = synthetic_results(2, 1, 2).drop("source")
    settings = {env: {"atari_protocol": protocol} for env in table["env"].unique()}
    assert report_data(Results(table, (), (Source("run", "run", 1, {"settings": settings}, None),)), FEW).full_actions


def test_a_sweep_over_k_in_environments_without_a_common_scale() -> None:
    several = pl.concat([sweep(), sweep().with_columns(env=pl.lit("Other"))])
    need = unmet_needs(report_data(results(several), FEW))["sensitivity"]
    assert need == "normalized scores (Atari games only, or MinAtar games that DQN learned), or one environment"


def test_unknown_and_impossible_figures_are_refused_in_one_line(atari: Results) -> None:
    with pytest.raises(InvalidInput, match=r"no figure 'iqn': choose one of iqm, .*auc-change, .*geometry"):
        figures_for(atari, ["iqn"])
    with pytest.raises(InvalidInput, match="iqm needs normalized scores"):
        figures_for(results(sweep()), ["iqm"])
    bare = atari.table.drop("overestimation")
    with pytest.raises(InvalidInput, match="needs the column overestimation"):
        figures_for(results(bare), ["overestimation-curves"])


def test_synthetic_records_are_the_same_again_and_marked() -> None:
    table = synthetic_results(2, 3, 5, seed=7)
    assert table.height == 2 * len(ALGORITHMS) * 3 * 5
    assert table.equals(synthetic_results(2, 3, 5, seed=7))
    assert not table.equals(synthetic_results(2, 3, 5, seed=8))
    assert table["source"].unique().to_list() == ["synthetic"]
    assert report_data(results(table)).is_synthetic
    assert not report_data(results(table.drop("source"))).is_synthetic
    assert synthetic_results(1, 1, 200)["step"].max() == 50_000_000
    for wrong in ((0, 1, 1), (58, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(InvalidInput, match="games = "):
            synthetic_results(*wrong)


def test_figures_of_synthetic_records_say_so_inside_their_edges() -> None:
    made_up = results(synthetic_results(2, 1, 2))
    for one in draw_figures(report_data(made_up, FEW), ["auc-change", "learning-curves"]):
        (mark,) = (text for text in one.figure.texts if "no agent was trained" in text.get_text())
        with _laid_out(one.figure) as saved:
            extent = mark.get_window_extent().transformed(one.figure.dpi_scale_trans.inverted())
            assert saved.y0 <= extent.y0
            assert extent.x1 <= saved.x1


def test_one_seed_is_singular() -> None:
    made_up = results(synthetic_results(2, 1, 2))
    (drawn,) = draw_figures(report_data(made_up, FEW), ["iqm"])
    assert "over 2 games with 1 seed." in drawn.caption


@pytest.mark.parametrize(
    ("seeds", "highest", "end"),
    [
        (2, 3.0, "over seeds; translucent: single seeds."),
        (2, 30.0, "over seeds; translucent: single seeds. Values above 25 are drawn there."),
        (11, 3.0, "over seeds."),
        (11, 30.0, "over seeds."),  # one seed of many: no line of its own, and the mean is below
    ],
)
def test_the_caption_of_overestimation_names_only_what_is_drawn(seeds: int, highest: float, end: str) -> None:
    rows = [
        {"env": "A-v0", "algorithm": "dqn", "k": 0.0, "seed": seed, "step": step, "score": 1.0}
        | {"overestimation": highest if seed == 0 else 1.0}
        for seed in range(seeds)
        for step in (0, 100)
    ]
    (drawn,) = draw_figures(report_data(Results(pl.DataFrame(rows), (), ())), ["overestimation-curves"])
    assert drawn.caption.endswith(end)


def test_overestimation_is_of_others_where_the_pair_has_none() -> None:
    """Episodes of DQN and IB-DQN that no evaluation finished have no overestimation."""
    rows = [
        {"env": "A-v0", "algorithm": name, "k": k, "seed": 0, "step": step, "score": 1.0, "overestimation": value}
        for name, k, value in (("dqn", 0.0, None), ("ib-dqn", 4.0, None), ("rdq", 0.0, 2.0))
        for step in (0, 100)
    ]
    (drawn,) = draw_figures(report_data(Results(pl.DataFrame(rows), (), ())), ["overestimation-curves"])
    assert [text.get_text() for text in drawn.figure.legends[0].get_texts()] == ["RDQ"]
