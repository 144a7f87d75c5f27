"""Training: shared students from trained teachers, the demo model among them.

Needs torch, tokenizers and accelerate:

- :mod:`~exporter.training.data` fetches, reads and splits the sentences that
  :mod:`~exporter.training.sources` names; :mod:`~exporter.training.evaluate` measures a
  model on them, and :mod:`~exporter.training.card` keeps its card in step.
- :mod:`~exporter.training.loop` trains any objective over
  :mod:`~exporter.training.batches`, and resumes it from the
  :mod:`~exporter.training.snapshots` it writes; :mod:`~exporter.training.tokenizer` makes
  pieces of its own for a model that starts from nothing.
- :mod:`~exporter.training.fine_tuning` makes a :mod:`~exporter.training.teacher` of the
  :mod:`~exporter.training.sentence_encoder`, and :mod:`~exporter.training.judging` collects
  what a teacher says of texts:
  :mod:`~exporter.training.transfer` gathers those of the demo model, most of them from
  :mod:`~exporter.training.reviews`, and
  :mod:`~exporter.training.texts` reads anyone's.
- :mod:`~exporter.training.convert` averages a trained encoder's layers into shared ones,
  :mod:`~exporter.training.vocabulary` trims its vocabulary,
  :mod:`~exporter.training.distill` trains the result on the teacher's answers after every
  layer, and :mod:`~exporter.training.depths` measures it there.
- :mod:`~exporter.training.runs` is one distillation from folder to folder,
  :mod:`~exporter.training.distilled_demo` that of the demo model.
"""
