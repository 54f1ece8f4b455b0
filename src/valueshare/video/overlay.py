"""One frame of a video: the screen, and beside it the values of the agent's network.

    screen   environment, algorithm, agent
             score, step, episode
             b                      [bar]
             action   q = b + z     [bar from 0 to b, from there to q]    z [bar]
             ...
             q of the chosen action and b over the last steps

The background is drawn once; a frame is a copy of it with the image, bars and numbers.
"""

import math
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from valueshare.video.rendering import Frame
from valueshare.video.rollouts import RolloutStep

HEIGHT, PANEL = 640, 560  # of a frame; the width of the panel
SCREEN = (480, 640)  # the smallest and largest width of the screen
MARGIN, GAP = 16, 12
NAME, Q_BAR, Z_BAR, NUMBER = 122, 168, 94, 66  # widths of the table's columns
Q_LEFT = MARGIN + NAME  # where the bars of q begin, and those of z; a number follows each
Z_LEFT = Q_LEFT + Q_BAR + NUMBER + GAP
ROWS_TOP = 164  # where the table of actions begins
ROW, BAR = 36, 18  # the tallest row and bar
STRIP = (76, 220)  # the least and greatest height of the curves below the table
MAX_ROWS = 26  # actions that can be read at this height
STEP_PIXELS = 2  # of the curves

BACKGROUND, CHOSEN, FRAME, FAINT = "#16181D", "#2C323D", "#2A2E36", "#5A6270"
PLAIN, BRIGHT, BASELINE_COLOUR = "#A9B1BD", "#FFFFFF", "#2F5F7A"
SKY, ORANGE, GREEN, PURPLE = "#56B4E9", "#E69F00", "#009E73", "#CC79A7"  # Okabe and Ito's
ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # ends of scales, times a power of ten

Box = tuple[int, int, int, int]  # left, top, width, height


class Captions(NamedTuple):
    """The texts of the panel that never change."""

    title: str
    baseline: str  # the meaning of b
    values: str  # the meaning of the bars of q
    actions: tuple[str, ...]


class Axis:
    """A scale that holds all values so far, and 0: it grows in steps, and never shrinks."""

    def __init__(self) -> None:
        self.low, self.high = 0.0, 0.0

    def include(self, values: NDArray[np.float64]) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:
            self.low = min(self.low, -round_up(-float(finite.min())))
            self.high = max(self.high, round_up(float(finite.max())))

    def pixel(self, value: float, width: int) -> int:
        """The pixel of a value, 0, ..., width - 1; that of 0 if it is not finite."""
        span = self.high - self.low
        inside = value if math.isfinite(value) else 0.0
        return round((inside - self.low) / span * (width - 1)) if span else 0

    @property
    def decimals(self) -> int:
        """Decimals of numbers on this scale: four digits of the largest."""
        size = max(self.high, -self.low)
        return min(6, max(0, 3 - math.floor(math.log10(size)))) if size else 1


def round_up(value: float) -> float:
    """The next of ROUND times a power of ten; 0 for values that are not positive."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((n * power for n in ROUND if value <= n * power), 10.0 * power)


class Overlay:
    """Draws the frames of a video in their order: scales and curves depend on earlier ones."""

    def __init__(self, captions: Captions, first: RolloutStep) -> None:
        self.captions = captions
        self.image_size = (0, 0) if first.image is None else fit_size(*first.image.shape[:2])
        width = max(self.image_size[1], SCREEN[0])
        self.screen = width + width % 2  # H.264 wants even sizes
        self.rows = min(len(captions.actions), MAX_ROWS)
        room = HEIGHT - ROWS_TOP - STRIP[0] - 3 * MARGIN
        self.row = min(ROW, room // self.rows)
        below = ROWS_TOP + self.rows * self.row + 2 * MARGIN
        self.strip = min(STRIP[1], HEIGHT - MARGIN - below)
        self.q_axis, self.z_axis, self.features = Axis(), Axis(), Axis()
        self.curves: deque[tuple[float, float]] = deque(maxlen=(PANEL - 2 * MARGIN) // STEP_PIXELS)
        self.background = self._background()

    def draw(self, step: RolloutStep) -> Frame:
        """One frame, [HEIGHT, width, 3]."""
        values = step.values
        band = np.empty(0) if values.band is None else values.band.ravel()
        self.q_axis.include(np.concatenate([values.q, [values.baseline], band]))
        self.z_axis.include(values.residuals)
        if step.step == 0:
            self.curves.clear()
        if step.ending is None:
            self.curves.append((float(values.q[step.action]), values.baseline))
        panel = self.background.copy()
        draw = ImageDraw.Draw(panel)
        self._head(draw, step)
        for number in range(self.rows):
            self._action(draw, step, number)
        self._curves(draw)
        frame = np.zeros((HEIGHT, self.screen + PANEL, 3), np.uint8)
        frame[:, self.screen :] = np.asarray(panel)
        if step.image is None:
            frame[:, : self.screen] = self._observation(step.observation)
        else:
            height, width = self.image_size
            top, left = (HEIGHT - height) // 2, (self.screen - width) // 2
            frame[top : top + height, left : left + width] = scaled(step.image, height, width)
        return frame

    def _background(self) -> Image.Image:
        image = Image.new("RGB", (PANEL, HEIGHT), BACKGROUND)
        draw = ImageDraw.Draw(image)
        draw.text((MARGIN, MARGIN), self.captions.title, BRIGHT, font(16))
        draw.text((MARGIN, ROWS_TOP - 64), self.captions.baseline, SKY, font(14))
        heads = ROWS_TOP - 22
        draw.text((MARGIN, heads), "action", FAINT, font(13))
        draw.text((Q_LEFT, heads), self.captions.values, PLAIN, font(13))
        draw.text((Z_LEFT, heads), "z", ORANGE, font(13))
        if left_out := len(self.captions.actions) - self.rows:
            draw.text((MARGIN, ROWS_TOP + self.rows * self.row), f"and {left_out} more actions", FAINT, font(12))
        top = HEIGHT - MARGIN - self.strip
        draw.text((MARGIN, top - 17), "b", SKY, font(12))
        draw.text((MARGIN + 16, top - 17), "and q of the chosen action", PLAIN, font(12))
        draw.rectangle((MARGIN, top, PANEL - MARGIN, HEIGHT - MARGIN), outline=FRAME)
        return image

    def _head(self, draw: ImageDraw.ImageDraw, step: RolloutStep) -> None:
        line = f"score {score_text(step.score)}   step {step.step:,}   episode {step.episode}"
        draw.text((MARGIN, MARGIN + 28), line, BRIGHT, font(16))
        if step.ending is not None:
            draw.text((MARGIN, MARGIN + 54), step.ending, GREEN, font(16))
        elif step.action != step.greedy:
            draw.text((MARGIN, MARGIN + 54), "explores", PURPLE, font(16))
        b, y = step.values.baseline, ROWS_TOP - 44
        _bar(draw, self.q_axis, (Q_LEFT, y, Q_BAR, 14), 0.0, b, SKY)
        _number(draw, self.q_axis, b, (Q_LEFT + Q_BAR + NUMBER, y - 1), SKY, 14)

    def _action(self, draw: ImageDraw.ImageDraw, step: RolloutStep, number: int) -> None:
        values, height = step.values, self.row
        q, b, z = float(values.q[number]), values.baseline, float(values.residuals[number])
        y, ink = ROWS_TOP + number * height, PLAIN
        if number == step.action:
            ink, edge = BRIGHT, GREEN if number == step.greedy else PURPLE
            draw.rectangle((10, y, PANEL - 10, y + height - 2), fill=CHOSEN)
            draw.rectangle((6, y, 9, y + height - 2), fill=edge)
        size = min(15, height - 4)
        line = y + (height - size) // 2 - 2
        draw.text((MARGIN, line), self.captions.actions[number], ink, font(size))
        bar = max(4, min(BAR, height - 8))
        top = y + (height - bar) // 2 - 1
        # The baseline, and on top of it, or back from it, the residual of this action.
        _bar(draw, self.q_axis, (Q_LEFT, top, Q_BAR, bar), 0.0, b, BASELINE_COLOUR)
        _bar(draw, self.q_axis, (Q_LEFT, top + bar // 4, Q_BAR, bar // 2), b, q, ORANGE)
        if values.band is not None:
            low, high = (self.q_axis.pixel(float(x), Q_BAR) for x in values.band[:, number])
            draw.line((Q_LEFT + low, top + bar // 2, Q_LEFT + high, top + bar // 2), fill=BRIGHT)
        x = Q_LEFT + self.q_axis.pixel(q, Q_BAR)
        draw.rectangle((x - 1, top, x, top + bar - 1), fill=BRIGHT)
        _bar(draw, self.z_axis, (Z_LEFT, top, Z_BAR, bar), 0.0, z, ORANGE)
        _number(draw, self.q_axis, q, (Q_LEFT + Q_BAR + NUMBER, line), ink, size)
        _number(draw, self.z_axis, z, (Z_LEFT + Z_BAR + NUMBER, line), ink, size)

    def _curves(self, draw: ImageDraw.ImageDraw) -> None:
        height = self.strip - 6
        bottom = HEIGHT - MARGIN - 4
        zero = bottom - self.q_axis.pixel(0.0, height)
        draw.line((MARGIN + 1, zero, PANEL - MARGIN - 1, zero), fill=FAINT)
        for column, colour in ((1, SKY), (0, BRIGHT)):
            points = [
                (MARGIN + STEP_PIXELS * i, bottom - self.q_axis.pixel(pair[column], height))
                for i, pair in enumerate(self.curves)
            ]
            if len(points) > 1:
                draw.line(points, fill=colour)

    def _observation(self, observation: NDArray[Any]) -> Frame:
        """A bar per number in place of a screen, as many as have room."""
        image = Image.new("RGB", (self.screen, HEIGHT))
        draw = ImageDraw.Draw(image)
        numbers = np.asarray(observation, np.float64).ravel()
        self.features.include(numbers)
        draw.text((MARGIN, MARGIN), "observation", PLAIN, font(16))
        room = HEIGHT - 3 * MARGIN - 24
        row = min(40, max(14, room // numbers.size))
        for number, value in enumerate(numbers[: room // row].tolist()):
            y = MARGIN + 32 + number * row
            draw.text((MARGIN, y), str(number), FAINT, font(12))
            box = (MARGIN + 36, y + 1, self.screen - 156, max(6, row - 8))
            _bar(draw, self.features, box, 0.0, value, SKY)
            _number(draw, self.features, value, (self.screen - MARGIN, y), PLAIN, 12)
        return np.asarray(image)


def _bar(draw: ImageDraw.ImageDraw, axis: Axis, box: Box, start: float, end: float, colour: str) -> None:
    left, top, width, height = box
    zero = left + axis.pixel(0.0, width)
    low, high = sorted((axis.pixel(start, width), axis.pixel(end, width)))
    if math.isfinite(start) and math.isfinite(end) and start != end:
        draw.rectangle((left + low, top, left + high, top + height - 1), fill=colour)
    draw.line((zero, top - 2, zero, top + height + 1), fill=FAINT)


def _number(draw: ImageDraw.ImageDraw, axis: Axis, value: float, at: tuple[int, int], colour: str, size: int) -> None:
    """A number whose right upper corner is `at`."""
    draw.text(at, number_text(value, axis.decimals), colour, font(size), anchor="ra")


def number_text(value: float, decimals: int) -> str:
    """A number of the panel; a zero has no sign."""
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def score_text(score: float) -> str:
    """A score: whole where it is, else with two decimals."""
    return f"{score:,.0f}" if score.is_integer() else f"{score:,.2f}"


def fit_size(height: int, width: int) -> tuple[int, int]:
    """The size of an image in a frame: a whole multiple where it is small, else shrunk."""
    ratio = min(HEIGHT / height, SCREEN[1] / width)
    if ratio >= 1:
        return height * int(ratio), width * int(ratio)
    return max(1, int(height * ratio)), max(1, int(width * ratio))


def scaled(image: Frame, height: int, width: int) -> Frame:
    """An image at its size in a frame; the pixels of small ones stay squares."""
    if image.shape[:2] == (height, width):
        return image
    larger = height > image.shape[0]  # then a whole multiple
    method = Image.Resampling.NEAREST if larger else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(image).resize((width, height), method))


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Matplotlib's own font: on every machine, with digits of one width."""
    import matplotlib as mpl

    fonts = Path(mpl.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(fonts / "DejaVuSans.ttf", max(6, size))
