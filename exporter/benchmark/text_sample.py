"""Real texts to measure on: a fixed sample of a file, as each artifact's tokenizer cuts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exporter.artifact import Artifact
from exporter.errors import BenchmarkError
from exporter.inputs import Feeds
from exporter.records import Texts

__all__ = ["TextSample", "sample_texts"]

_SEED = 20_260_101


@dataclass(frozen=True, eq=False)
class TextSample:
    """Texts as one artifact's models take them.

    Args:
        texts: what records say about them.
        feeds: the arrays of each, one row.
        lengths: tokens of each, in the same order.
    """

    texts: Texts
    feeds: tuple[Feeds, ...]
    lengths: tuple[int, ...]

    def at(self, number: int) -> Feeds:
        """Return the text of round ``number``; after the last comes the first again."""
        return self.feeds[number % len(self.feeds)]

    @property
    def longest(self) -> Feeds:
        """The text of most tokens."""
        return self.feeds[int(np.argmax(self.lengths))]

    @property
    def mean_tokens(self) -> int:
        """Tokens of a text on average, rounded."""
        return round(float(np.mean(self.lengths)))

    @property
    def mean_share(self) -> float:
        """Average length in proportion to the longest."""
        return float(np.mean(self.lengths)) / max(self.lengths)


def sample_texts(
    artifacts: Sequence[Artifact],
    path: Path,
    count: int,
    *,
    column: str = "text",
    notice: Callable[[str], None] = lambda text: None,
) -> list[TextSample]:
    """Draw ``count`` texts of a file, or take all where it has no more, in a random order.

    The same file and number give the same texts in the same order, at any time and for every
    artifact.

    Args:
        artifacts: whose tokenizers to use; each gets a sample.
        path: JSON lines, or CSV with a header; labels are not needed.
        count: how many.
        column: that holds the text.
        notice: told how many were cut to a model's length.

    Raises:
        BenchmarkError: the file or a tokenizer cannot be used, or a model takes no single text.
    """
    # Here, since it loads onnxruntime.
    from exporter.evaluation.examples import Examples, read_examples
    from exporter.evaluation.texts import TextEncoder

    found = read_examples(path, text_column=column, label_column=None)
    order = np.random.default_rng(_SEED).permutation(len(found.rows))[:count]
    chosen = Examples(found.name, found.sha256, tuple(found.rows[row] for row in order))
    texts = Texts(name=found.name[:200], sha256=found.sha256, rows=len(order), column=column)
    samples = []
    for artifact in artifacts:
        encoder = TextEncoder.load(artifact)
        encoded = encoder.encode(chosen)
        feeds = tuple(batch.feeds for batch in encoder.batches(encoded, 1))
        shapes = [next(iter(one.values())).shape for one in feeds]
        if shapes[0][0] != 1:
            raise BenchmarkError(
                f"{artifact.folder} takes {shapes[0][0]} texts at a time, and --data runs one; "
                "leave it out"
            )
        if cut := sum(text.cut for text in encoded):
            name = artifact.folder.resolve().name
            notice(f"{name}: {cut:,} of {len(encoded):,} texts were cut to {encoder.limit} tokens")
        samples.append(TextSample(texts, feeds, tuple(shape[1] for shape in shapes)))
    return samples
