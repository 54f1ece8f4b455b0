"""The process that renders a clip for the page of `valueshare watch`: a few seconds of one agent's screen.

python -m valueshare.video.clip   # renders what is requested on its stdin, and ends with it
"""

import json
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from valueshare.children import serve
from valueshare.errors import InvalidInput

MAX_FRAMES, MAX_SECONDS = 300, 10.0
WIDTH = 320  # pixels, at most
SEED = 0


def render(text: str) -> None:
    """Write a clip as .mp4, from {"folder": ..., "agent": ..., "video": ...}, and the step of its weights as .step."""
    os.nice(19)  # training on this machine comes first
    import numpy as np
    from PIL import Image

    from valueshare.runs.policies import read_policy
    from valueshare.video.record import write_video
    from valueshare.video.rendering import Frame, make_rendered_env
    from valueshare.video.rollouts import rollout

    def refuse_imports(env_ids: Sequence[str]) -> None:
        for name in env_ids:
            if ":" in name:
                raise InvalidInput(f"it would need importing {name.partition(':')[0]}, which `valueshare play` does")

    request = json.loads(text)
    policy = read_policy(Path(request["folder"]), request["agent"], before_import=refuse_imports)
    video = Path(request["video"])
    video.with_suffix(".step").write_text(str(policy.steps))
    settings, env = policy.population.settings, policy.population.env
    rendered = make_rendered_env(env, settings.atari_protocol)

    def frames() -> Iterator[Frame]:
        most = min(MAX_FRAMES, round(MAX_SECONDS * rendered.rate))
        limit = min(most, settings.eval_episode_limit or env.episode_limit or most)
        played = rollout(policy, rendered, episodes=most, seed=SEED, epsilon=settings.eval_epsilon, episode_limit=limit)
        for step in islice(played, most):
            if step.image is None:
                why = f": {rendered.problem}" if rendered.problem else ""
                raise InvalidInput(f"{env.name} cannot be rendered here{why}")
            yield resized(step.image)

    def resized(image: Frame) -> Frame:
        height, width = image.shape[:2]
        scale = min(1.0, WIDTH / width)
        even = [max(2, round(scale * size / 2) * 2) for size in (width, height)]  # as H.264 requires
        smaller: Frame = np.asarray(Image.fromarray(image).resize((even[0], even[1]), Image.Resampling.BOX))
        return smaller

    try:
        write_video(video, frames(), rendered.rate)
    finally:
        rendered.close()


if __name__ == "__main__":
    serve(render)
