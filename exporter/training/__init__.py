"""Training and evaluation of the demo model: a small sentence-sentiment classifier.

Needs torch and tokenizers. :mod:`~exporter.training.sources` fetches the two pinned
archives, :mod:`~exporter.training.data` reads and splits them,
:mod:`~exporter.training.tokenizer` and :mod:`~exporter.training.train` make the model,
:mod:`~exporter.training.evaluate` measures it and :mod:`~exporter.training.card` keeps
the model card's figures in step with the measurement.
"""
