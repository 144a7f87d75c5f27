"""What was done, and what it does not tell, in words."""

from __future__ import annotations

from benchmarks.sharing_tradeoff.settings import FULL

__all__ = ["LIMITS", "METHOD"]

METHOD = f"""
Every encoder has {FULL.layers} layers of width {FULL.hidden_size} and starts from random weights: \
normal, with a deviation of 0.1 for tokens, 0.02 for positions, and for the rest of the inverse \
root of a matrix's number of inputs in `classify` and of ALBERT's 0.02 in `generate`. Plain runs \
of a task and seed see the same examples, as often, in the same order, and so do distilled ones. A \
tenth of a classifier's pieces is hidden from it in training, and what is kept of any training is \
a moving average of its weights. `classify` learns people's ratings of sentences (from reviews, \
newspaper editorials and tweet-like messages) and of a lexicon's words, and is measured on 3,881 \
other sentences, of which 3,000 are from collections that no training has seen. `generate` learns \
to give the next of {FULL.vocab_size:,} word pieces of the same sentences and words and of \
WordNet's definitions and examples, and is measured on {FULL.generate.passages[1]} held-out \
passages. Distilled classifiers learn the answers of a fine-tuned BERT to twice as many texts, \
each seen half as often; distilled generators learn half from the text and half from an unshared \
generator of {FULL.generate.teacher_factor} times the width, which has read twice as much text, \
twice. Quality is that of the exported files, run by onnxruntime at batch \
{FULL.evaluation_batch}. Pruning sets the smallest of the layers' weights to zero after training, \
over all layers together; nothing is trained afterwards.
""".strip()

LIMITS = """
- Small encoders, short trainings and one language: claims about models of a hundred million \
parameters, trained for days, are tried here in small and not refuted.
- One learning rate and one number of steps for all schemes, one start for all of a task. A \
first round of `classify` began from 0.02: seeds of one scheme came out up to 8 points apart, \
and no claim about understanding was decided. The present start was then chosen, by trainings \
that were looked at on development sentences. `generate` was tried from it on one seed, did \
worse, and kept 0.02. Intervals know nothing of such choices.
- Nine claims are tried, and none of the intervals is widened for that.
- Telling a sentence's sentiment asks for little depth. Understanding that does could suffer more \
from sharing.
- Schemes are compared at equal depth and width. A shared encoder of equal size in bytes could be \
wider.
- Accuracy of next pieces and perplexity stand for generation; no text was written and judged.
- An interval is over seeds of weights and order, on the same test examples: it does not cover the \
choice of these. With three seeds it is wide, and "not decided" is a frequent answer.
""".strip()
