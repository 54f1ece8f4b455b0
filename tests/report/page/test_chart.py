"""The chart of the page in a real browser: zooming, panning, log axes, bands, reading values, wall clock."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from synthetic import data_of, synthetic_results, tidy, write_synthetic_run

from valueshare.analysis.importers.results import Results, read_results
from valueshare.report.page.results import results_page

Visiting = Callable[..., Any]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three games, seven algorithms, three seeds, 25 points."""
    folder = tmp_path_factory.mktemp("small")
    run = write_synthetic_run(folder / "run", synthetic_results(3, 3, 25))
    file = folder / "report.html"
    file.write_text(results_page(read_results(run), resamples=200))
    return file


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag from one place of the plotting area to another, both as shares of it from its upper left corner."""
    box = page.locator("#panel-plot .u-over").bounding_box()
    (x0, y0), (x1, y1) = ((box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end))
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move((x0 + x1) / 2, (y0 + y1) / 2)
    page.mouse.move(x1, y1)
    page.mouse.up()


def test_dragging_zooms_or_pans_and_a_double_click_shows_all(small: Path, visit: Visiting) -> None:
    seen = visit().open(small)
    page, ends = seen.page, "['x', 'y'].flatMap((s) => [u.scales[s].min, u.scales[s].max])"
    page.locator("#panel-plot").scroll_into_view_if_needed()
    assert seen.chart(ends)[:2] == [2e6, 50e6]  # 25 points
    whole = seen.chart(ends)
    drag(page, (0.25, 0.5), (0.75, 0.5))  # a quarter of 48M from both ends
    zoomed = seen.chart(ends)
    assert zoomed[:2] == pytest.approx([14e6, 38e6], abs=2e5)
    page.wait_for_url("**zoom=*")
    page.locator("[data-key='DQN']").check(force=True)  # another choice keeps it
    assert seen.chart(ends)[:2] == zoomed[:2]
    page.locator("[data-key='DQN']").uncheck(force=True)
    page.keyboard.down("Shift")
    drag(page, (0.5, 0.5), (0.75, 0.25))  # to the right and up: earlier steps and lower scores come in
    page.keyboard.up("Shift")
    height = zoomed[3] - zoomed[2]
    lower = [end - height / 4 for end in zoomed[2:]]
    assert seen.chart(ends) == pytest.approx([8e6, 32e6, *lower], rel=0.02)
    box = page.locator("#panel-plot .u-over").bounding_box()
    page.mouse.dblclick(box["x"] + 50, box["y"] + 50)
    assert seen.chart(ends) == pytest.approx(whole)
    drag(page, (0.5, 0.25), (0.505, 0.75))  # up and down: the scores
    assert seen.chart(ends)[:2] == whole[:2]
    assert seen.chart(ends)[3] - seen.chart(ends)[2] == pytest.approx((whole[3] - whole[2]) / 2, rel=0.02)
    page.get_by_role("button", name="Reset zoom").click()
    assert seen.chart(ends) == pytest.approx(whole)
    drag(page, (0.25, 0.25), (0.5, 0.75))
    page.get_by_role("button", name="Reset zoom").click()
    assert seen.chart(ends) == pytest.approx(whole)
    page.locator("#panel-plot").focus()
    page.keyboard.press("+")  # a fifth from both ends
    assert seen.chart(ends)[:2] == pytest.approx([11.6e6, 40.4e6])
    page.keyboard.press("Shift+ArrowRight")  # by a tenth
    assert seen.chart(ends)[:2] == pytest.approx([14.48e6, 43.28e6])
    page.keyboard.press("0")
    assert seen.chart(ends) == pytest.approx(whole)
    assert seen.said == []


def test_a_finger_zooms_and_two_pan(small: Path, visit: Visiting) -> None:
    seen = visit(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True).open(small)
    assert seen.page.get_by_text("drag with two fingers to pan").is_visible()
    assert not seen.page.get_by_text("drag with shift").is_visible()
    seen.page.locator("#panel-plot").scroll_into_view_if_needed()
    box = seen.page.locator("#panel-plot .u-over").bounding_box()
    whole = seen.chart("[u.scales.x.min, u.scales.x.max]")
    devtools = seen.context.new_cdp_session(seen.page)
    y = box["y"] + 60
    for kind, share in (("touchStart", 0.25), ("touchMove", 0.4), ("touchMove", 0.6), ("touchMove", 0.75)):
        point = {"x": box["x"] + share * box["width"], "y": y}
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    devtools.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    low, high = seen.chart("[u.scales.x.min, u.scales.x.max]")
    assert whole[0] < low < high < whole[1]
    for kind, shares in (("touchStart", [0.5]), ("touchStart", [0.5, 0.4]), ("touchMove", [0.6, 0.5])):
        points = [{"x": box["x"] + x * box["width"], "y": y + 9 * i, "id": i} for i, x in enumerate(shares)]
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    devtools.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    tenth = (high - low) / 10
    assert seen.chart("[u.scales.x.min, u.scales.x.max]") == pytest.approx([low - tenth, high - tenth], rel=0.01)
    assert seen.said == []


def test_log_axes_are_logarithmic(small: Path, visit: Visiting) -> None:
    """Half way up is the geometric mean; where scores are negative too, their scale is odd: f(-x) = -f(x)."""
    seen = visit().open(small)
    middle = "[u.posToVal(u.over.clientHeight / 2, 'y'), u.scales.y.min, u.scales.y.max]"
    half, low, high = seen.chart(middle)
    assert half == pytest.approx((low + high) / 2)
    seen.page.locator("#panel-log").check()
    half, low, high = seen.chart(middle)
    assert half == pytest.approx((low * high) ** 0.5)
    seen.page.locator("#panel-logx").check()
    half, low, high = seen.chart("[u.posToVal(u.over.clientWidth / 2, 'x'), u.scales.x.min, u.scales.x.max]")
    assert half == pytest.approx((2e6 * 50e6) ** 0.5)
    seen.page.get_by_role("button", name="Algorithm: all").click()
    seen.page.select_option("#panel-metric", index=0)
    seen.page.select_option("#panel-view", label="Amidar")
    seen.page.select_option("#panel-metric", label="overestimation")
    assert min(value for curve in seen.curves() for value in curve if value is not None) < 0
    above, zero, below = seen.chart("[0.5, 0, -0.5].map((v) => u.valToPos(v, 'y'))")
    assert zero - above == pytest.approx(below - zero)
    assert seen.chart("u.valToPos(5, 'y') - u.valToPos(50, 'y')") < 10 * (zero - above)
    assert seen.said == []


@pytest.mark.parametrize("last", [40, 4_000])
def test_log_axes_from_0_have_no_marks_outside(tmp_path: Path, visit: Visiting, last: int) -> None:
    """Steps 0 to `last` are linear up to 1 or 100, and logarithmic beyond."""
    rows = [{"env": "A", "algorithm": "dqn", "k": 0.0, "seed": 0, "step": t * last // 10} for t in range(11)]
    file = tmp_path / "report.html"
    file.write_text(results_page(Results(pl.DataFrame(rows).with_columns(score=pl.col("step")), (), ()), resamples=50))
    seen = visit().open(file)
    for name in ("log", "logx"):
        seen.page.locator(f"#panel-{name}").check()
    for number, expected in enumerate((["0", "1", "10"] if last == 40 else ["0", "100", "1k"], None)):
        axis = f"u.axes[{number}]"
        shown = seen.chart(f"{axis}._splits.filter((_, i) => {axis}._values[i] !== '')")
        low, high = seen.chart(f"[u.scales[{axis}.scale].min, u.scales[{axis}.scale].max]")
        assert low <= min(shown) < max(shown) <= high
        texts = [text for text in seen.chart(f"{axis}._values") if text]
        assert expected is None or set(expected) <= set(texts)
    assert seen.said == []


def test_curves_that_differ_in_their_dashes_do_so_on_the_page(tmp_path: Path, visit: Visiting) -> None:
    """As in the figures: dashes in widths of the line, which is 2 pixels wide."""
    scores = {("Here", "ib-dqn", float(k), 0): [k, k + 1.0] for k in (0, 1, 2, 3, 4, 5, 6, 7)}
    styles = [variant.style for variant in data_of(scores).variants]
    assert len({style.pattern for style in styles}) > 2
    file = tmp_path / "report.html"
    file.write_text(results_page(tidy(scores), resamples=50))
    seen = visit().open(file)
    while (off := seen.page.locator(".chip input:not(:checked)")).count():
        off.first.click()
    expected = [[2 * length for length in style.pattern] for style in styles]
    assert seen.chart("mean.map((i) => u.series[i].dash)") == expected
    drawn = "[...document.querySelectorAll('.u-legend .swatch')].map((one) => getComputedStyle(one).backgroundImage)"
    for text, lengths in zip(seen.page.evaluate(drawn), expected, strict=True):
        ends = list(dict.fromkeys(float(end) for end in re.findall(r"([\d.]+)px", text)))
        assert np.diff(ends).tolist() == pytest.approx(lengths)


def test_bands_are_drawn_around_their_curves(tmp_path: Path, visit: Visiting) -> None:
    rows = [
        {"environment": "Here", "algorithm": "dqn", "seed": s, "step": t, "score": 100 * s + t}
        for s in (0, 1)
        for t in range(0, 101, 50)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "x.csv")
    file = tmp_path / "x.html"
    file.write_text(results_page(read_results(tmp_path / "x.csv"), resamples=200))
    seen = visit(color_scheme="light").open(file)
    assert seen.curves() == [pytest.approx([50, 100, 150])]
    # At step 75 the mean is 125, its interval 75 to 175. Colours where nothing is, in the band, and without bands.
    pixel = "[20, 85, 115, 135, 165, 195].map((v) => [...u.ctx.getImageData(u.valToPos(75, 'x', true),"
    pixel += " u.valToPos(v, 'y', true), 1, 1).data].slice(0, 4).join())"
    below, *inside, above = seen.chart(pixel)
    assert below == above == "0,0,0,0"
    assert len(set(inside)) == 1
    assert inside[0] != below
    seen.page.locator("#panel-bands").uncheck()
    assert set(seen.chart(pixel)) == {"0,0,0,0"}
    seen.page.locator("#panel-seeds").check()
    column = (
        "[...u.ctx.getImageData(u.valToPos(75, 'x', true), u.valToPos(175, 'y', true) - 3, 1, 7).data].some(Boolean)"
    )
    assert seen.chart(column)  # the line of the second seed
    assert [text for text in seen.said if "getImageData" not in text] == []  # but for this test's


def test_a_curve_connects_its_own_points_over_steps_that_only_others_have(tmp_path: Path, visit: Visiting) -> None:
    """DQN every 100 steps, without a score at 200, and IB-DQN(4) every 50. Seeds of DQN: 0 and 90, the mean is 45."""
    scores = [("dqn", 0.0, step, None if step == 200 else 0.0) for step in range(0, 401, 100)]
    scores += [("ib-dqn", 4.0, step, 500.0) for step in range(0, 401, 50)]
    columns = ["algorithm", "k", "step", "score"]
    first = pl.DataFrame(scores, columns, orient="row").with_columns(env=pl.lit("Here"), seed=0)
    rows = pl.concat([first, first.with_columns(pl.col("score") + 90, seed=1)])
    file = tmp_path / "x.html"
    file.write_text(results_page(Results(rows, (), ()), resamples=200))
    seen = visit().open(file)
    assert seen.curves()[0] == [45, None, 45, None, None, None, 45, None, 45]

    def opacity(value: float, radius: int = 0) -> list[int]:
        """Of the most opaque pixel near a value, at steps between two of the x axis's grid lines."""
        pixels = f"u.valToPos(x, 'x', true), u.valToPos({value}, 'y', true) - {radius}, 1, {2 * radius + 1}"
        found: list[int] = seen.chart(
            f"[30, 70, 130, 170, 230, 270, 330].map((x) => Math.max(...u.ctx.getImageData({pixels}).data"
            ".filter((_, i) => i % 4 === 3)))"
        )
        return found

    assert opacity(45) == [255] * 7  # the mean
    assert opacity(20) == opacity(70) == [41] * 7  # the band: 0.16 of 255
    assert opacity(130) == [0] * 7
    seen.page.locator("#panel-bands").uncheck()
    assert opacity(90, radius=3) == [0] * 7
    seen.page.locator("#panel-seeds").check()
    assert min(opacity(90, radius=3)) > 0
    seen.chart("u.setScale('x', { min: 215, max: 245 })")  # between two points
    assert opacity(45)[4] == 255
    # (1 + 2) / 2, (1 + 2 + 6) / 3, (2 + 6) / 2: a moving average of three is one of the curve's own values.
    assert seen.page.evaluate("valueshare.smoothed([1, null, 2, null, 6], 1)") == [1.5, None, 3, None, 4]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_x_axis_is_wall_clock_where_it_is_known(visit: Visiting, tmp_path: Path, width: int) -> None:
    """DQN takes one hour for 10 steps, and IB-DQN(4) half of it."""
    rows = [
        {
            "env": "Here",
            "algorithm": a,
            "k": k,
            "seed": s,
            "step": t,
            "score": 1.0 * t + s,
            "seconds": 360.0 * t / speed,
        }
        for a, k, speed in (("dqn", 0.0, 1), ("ib-dqn", 4.0, 2))
        for s in (0, 1)
        for t in (0, 10, 20)
    ]
    file = tmp_path / "x.html"
    file.write_text(results_page(Results(pl.DataFrame(rows), (), ()), resamples=200))
    seen = visit(viewport={"width": width, "height": 800}).open(file)
    assert seen.chart("[...u.data[0]]") == [0, 10, 20]
    seen.page.locator("#panel-clock").check()
    assert seen.chart("[...u.data[0]]") == pytest.approx([0, 0.5, 1, 2], abs=1e-4)
    assert seen.chart("u.axes[0].label") == "hours of training (whole population)"
    assert seen.curves() == [pytest.approx([0.5, None, 10.5, 20.5]), pytest.approx([0.5, 10.5, 20.5, None])]
    seen.page.locator("#panel-plot").focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        seen.page.keyboard.press(key)
    assert "At 1 hours" in seen.page.inner_text(".readout").replace("1.00", "1")
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    assert seen.said == []
    without = Results(pl.DataFrame(rows).drop("seconds"), (), ())
    file.write_text(results_page(without, resamples=200))
    seen.page.reload()  # with the wall clock in the address
    assert not seen.page.locator("#panel-clock").is_visible()
    assert seen.chart("[...u.data[0], u.axes[0].label]") == [0, 10, 20, "timesteps"]


def test_the_legend_breaks_no_word_and_rounds_times(tmp_path: Path, visit: Visiting) -> None:
    """The names are too long for one line; IB-DQN(4) ends after 200 / 3 seconds, DQN after 200."""
    rows = [
        {"env": "Here", "algorithm": f"{a} run=batch-16", "k": k, "seed": s, "step": t, "score": 1000.25 * t + s}
        | {"seconds": 10.0 * t / speed}
        for a, k, speed in (("ib-dqn", 0.0, 1), ("ib-dqn", 4.0, 3))
        for s in (0, 1)
        for t in (0, 10, 20)
    ]
    file = tmp_path / "x.html"
    file.write_text(results_page(Results(pl.DataFrame(rows), (), ()), resamples=50))
    seen = visit().open(file)
    seen.page.locator("#panel-clock").check()
    assert re.search(r" at 1\.11\s", seen.page.inner_text(".readout"))  # minutes
    words = seen.page.locator(".u-legend .name").evaluate_all(
        "all => all.map(e => [e.innerText, e.getClientRects().length])"
    )
    assert ["IB-DQN(4),", 1] in words
    assert {count for _, count in words} == {1}
    assert seen.said == []


def test_the_mouse_and_the_arrows_read_values(small: Path, visit: Visiting) -> None:
    seen = visit().open(small)
    page = seen.page
    assert "At the end" in page.inner_text(".readout")
    box = page.locator("#panel-plot").bounding_box()
    page.locator("#panel-plot").scroll_into_view_if_needed()
    page.locator("#panel-plot").hover(position={"x": box["width"] / 2, "y": 100})
    middle = page.inner_text(".readout")
    assert "timesteps" in middle
    assert middle.count("[") == 2  # a value and an interval each
    page.locator("#panel-plot").focus()
    page.keyboard.press("Home")
    assert "At 2,000,000 timesteps" in page.inner_text(".readout")  # 25 points of 50M
    page.keyboard.press("ArrowRight")
    assert "At 4,000,000 timesteps" in page.inner_text(".readout")
    assert "IB-IQN(n)" in page.inner_text("[data-part=said]")  # for those who listen
    page.keyboard.press("Escape")
    assert "At the end" in page.inner_text(".readout")


def test_the_values_that_are_read_are_those_of_the_table(tmp_path: Path, visit: Visiting) -> None:
    rows = [
        {"environment": "Here", "algorithm": "dqn", "seed": s, "step": t, "score": 100 * s + t}
        for s in (0, 1)
        for t in (0, 5, 10)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "x.csv")
    file = tmp_path / "x.html"
    file.write_text(results_page(read_results(tmp_path / "x.csv"), resamples=200))
    seen = visit().open(file)
    seen.page.locator("#panel-plot").focus()
    seen.page.keyboard.press("Home")
    seen.page.keyboard.press("ArrowRight")
    # Seeds 5 and 105 at step 5: mean 55, and resamples from 5 to 105.
    words = " ".join(seen.page.inner_text(".readout tbody").split())
    assert words == "DQN 2 seeds 55 [5, 105]"
    assert "At 5 timesteps" in seen.page.inner_text(".readout thead")
    seen.page.keyboard.press("Escape")
    drawn = seen.page.locator("#panel-plot .u-over").bounding_box()
    seen.page.mouse.move(drawn["x"] + 0.55 * drawn["width"], drawn["y"] + 50)  # nearest to the middle
    assert " ".join(seen.page.inner_text(".readout tbody").split()) == words
    seen.page.mouse.move(drawn["x"], drawn["y"] - 100)
    assert " ".join(seen.page.inner_text(".readout tbody").split()) == "DQN 2 seeds 60 [10, 110]"  # at the end
    assert seen.said == []
