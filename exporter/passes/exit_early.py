"""Let a rolled model leave its loop as soon as its answers are good enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from exporter.early_exit import LAYERS_USED, MAX_LAYERS, MIN_LAYERS, RULES, RuleName
from exporter.errors import PassError
from exporter.inputs import InputSpec
from exporter.passes.blocks.constants import add_constant, drop_unused_constants
from exporter.passes.blocks.extend import LoopExtension
from exporter.passes.blocks.loops import CountedLoop, counted_loops
from exporter.passes.exit_rules import RULE_NODES, Look, RuleNodes, State
from exporter.passes.match import Match, ReportingPass
from exporter.passes.scopes import Names, inner_graphs

__all__ = ["ExitEarlyPass"]

_LOGITS = "logits"
_ONE = np.array(1, np.int64)
_USED = "layers_used_or_0"
_FIRST_OPSET = 18
"""The first opset in which all reductions take their axes as an input."""


class ExitEarlyPass(ReportingPass):
    """Move the head into the rolled loop, and end the loop once every row has its answer.

    ::

        x = Loop(12, , x0) {       ->   x, logits, used = Loop(max_layers, , x0, 0, 0) {
          x = layer(x_in)                 x = layer(x_in)
        }                                 logits, used, go_on = If(i >= quiet) {
        logits = head(x)                    logits = Where(used_in == 0, head(x), logits_in)
                                            used = Where(used_in == 0 and rule, i + 1, used_in)
                                            go_on = any(used == 0)
                                          } else { logits_in, used_in, true }
                                        }
                                        layers_used = Where(used == 0, max_layers, used)

    1. Everything that depends on the one loop of a constant number of iterations goes into the
       branch of an ``If`` at the end of its body. What these nodes take from outside stays
       there, so that a weight of the head is stored once, outside, as before.
    2. The rule (see :mod:`exporter.early_exit`) looks at the output ``logits``, or for
       ``change`` at the first output. Its setting, ``min_layers`` and ``max_layers`` become
       optional inputs: initializers that hold the defaults. ``layers_used``, ``int64
       [batch]``, becomes the last output.
    3. The branch is run for the passes from ``min_layers`` on, if the setting is one that can
       hold at all, and for the last pass. With the defaults it is run once, as before.
    4. All outputs that depend on the loop keep, row by row, the value of the pass after which
       the row left. With the defaults no row leaves early, and the operators of before give
       the bits of before (as written: onnxruntime does not pack weights that are used in a
       graph within a graph, and unpacked they are multiplied by another routine).
    5. What a row has before the first pass is one element, which broadcasting makes as many as
       there are rows.
    6. A model with an output ``layers_used`` is left alone.

    Args:
        rule: what decides.
        mask: input ``[batch, sequence]`` that is 0 at padding, for ``change``; without one
            every token counts.

    Raises:
        PassError: there is no loop of a constant number of iterations, or more than one; its
            depth is an input; it scans values of single layers; an output that depends on it
            is no ``[batch, …]``, or none fits the rule; a name is taken; the opset is too old.
    """

    def __init__(self, rule: RuleName, mask: str | None = None) -> None:
        super().__init__()
        self._rule, self._mask = RULES[rule], mask

    def rewrite(self, model: ir.Model) -> None:
        """Extend the loop, and put its outputs in the place of the graph's."""
        graph = model.graph
        if any(value.name == LAYERS_USED for value in graph.outputs):
            return
        loop = _only_loop(graph)
        tail = _dependents(graph, loop.node)
        outputs = [v for v in graph.outputs if v.producer() in (loop.node, *tail)]
        watched = self._watched(outputs)
        _check(
            model,
            outputs,
            watched,
            [*(spec.name for spec in self._rule.inputs), LAYERS_USED, _USED],
        )
        mask = next((value for value in graph.inputs if value.name == self._mask), None)

        extension = LoopExtension(model, loop.node)
        branch = extension.branch("look")
        answers = _move_tail(extension, branch, tail, outputs)
        assert loop.count is not None
        setting = _add_input(graph, self._rule.setting, self._rule.never)
        least = _add_input(graph, MIN_LAYERS, 1)
        most = _add_input(graph, MAX_LAYERS, loop.count)
        trip_count = extension.op(graph, "Max", [most, extension.constant("one", _ONE)], "passes")
        loop.node.replace_input_with(0, trip_count)
        drop_unused_constants(graph, [loop.trip_count])

        nodes = RULE_NODES[self._rule.name]
        quiet = _quiet_passes(extension, nodes, setting, least, trip_count)
        look = Look(extension, branch, answers[watched], setting, mask)
        names = {value: str(value.name) for value in outputs}
        go_on = _add_look(look, nodes, answers)
        finals = _finish_loop(look, go_on, quiet)
        replaced = {value: finals[name] for value, name in names.items()}
        _replace_outputs(extension, replaced, finals[_USED], trip_count)
        detail = f"leaves early by {self._rule.name}; {len(tail)} nodes moved into the loop"
        self.matches.append(Match(str(loop.node.name), detail))

    def _watched(self, outputs: Sequence[ir.Value]) -> ir.Value:
        """Return the output that the rule looks at."""
        names = ", ".join(f"{value.name} {value.shape}" for value in outputs)
        names = names or "nothing that depends on layers"
        logits = next((value for value in outputs if value.name == _LOGITS), None)
        if self._rule.name == "change":
            if logits is not None or not outputs or not _is_state(outputs[0]):
                raise PassError(
                    "the rule 'change' needs a model without a head, whose first output is "
                    f"[batch, width] or [batch, sequence, width]; this one gives {names}"
                )
            return outputs[0]
        if logits is None or _rank(logits) != 2 or logits.shape[1] == 1:  # type: ignore[index]
            raise PassError(
                f"the rule {self._rule.name!r} needs an output 'logits' [batch, labels] with two "
                f"labels or more; this model gives {names}; 'change' is for encoders without a head"
            )
        return logits


def _is_state(value: ir.Value) -> bool:
    """Whether it is ``[batch, width]`` or ``[batch, sequence, width]``.

    Numbers per token, such as where an answer starts, hold padding that no mask takes out.
    """
    return _rank(value) in (2, 3) and isinstance(value.shape[-1], int)  # type: ignore[index]


def _only_loop(graph: ir.Graph) -> CountedLoop:
    if graph.opset_imports.get("", 0) < _FIRST_OPSET:
        raise PassError(
            f"an early exit needs opset {_FIRST_OPSET}, this model is written in "
            f"{graph.opset_imports.get('', 0)}; export it again from its checkpoint"
        )
    loops = counted_loops(graph)
    if len(loops) != 1:
        raise PassError(
            f"an early exit needs one rolled loop, this model has {len(loops)}; "
            "roll its layers first, and share one layer among all"
        )
    loop = loops[0]
    if loop.count is None:
        raise PassError(
            "an early exit needs a constant trip count, here it is an input or computed; leave "
            "--elastic-depth out: max_layers is the same"
        )
    if loop.scanned:
        raise PassError(
            "an early exit cannot give outputs of single layers, which it may not compute; "
            "export without hidden states"
        )
    return loop


def _dependents(graph: ir.Graph, loop: ir.Node) -> list[ir.Node]:
    """Return the nodes that need a result of ``loop``, in order."""
    reached, nodes = set(loop.outputs), []
    for node in graph:
        if any(value in reached for value in _reads(node)):
            nodes.append(node)
            reached.update(node.outputs)
    return nodes


def _reads(node: ir.Node) -> Iterator[ir.Value | None]:
    """Yield what ``node`` takes, also by way of the graphs inside it."""
    yield from node.inputs
    for inner in inner_graphs([node]):
        yield from inner.outputs
        for nested in inner:
            yield from _reads(nested)


def _check(
    model: ir.Model, outputs: Sequence[ir.Value], watched: ir.Value, names: Sequence[str]
) -> None:
    assert watched.shape is not None
    for value in outputs:
        if value.shape is None or not value.shape.rank() or value.shape[0] != watched.shape[0]:
            raise PassError(
                f"an early exit needs outputs with a row per example; {value.name!r} is "
                f"{value.shape}"
            )
    taken = Names(model)
    for name in names:
        if taken.fresh(name) != name:
            raise PassError(f"an early exit cannot add {name!r}: the name is taken")


def _add_input(graph: ir.Graph, spec: InputSpec, default: float) -> ir.Value:
    value = add_constant(graph, spec.name, np.array(default, spec.dtype))
    graph.inputs.append(value)
    return value


def _move_tail(
    extension: LoopExtension,
    branch: ir.Graph,
    tail: Sequence[ir.Node],
    outputs: Sequence[ir.Value],
) -> dict[ir.Value, ir.Value]:
    """Move ``tail`` into ``branch``; return the value there, or in the body, of each output."""
    graph, loop = extension.graph, extension.loop
    inside = dict(zip(loop.outputs, extension.body.outputs[1:], strict=True))
    for final, result in inside.items():
        for use in tuple(final.uses()):
            use.node.replace_input_with(use.idx, result)
    graph.remove(tail)
    branch.extend(tail)
    # Nodes after it may compute what the tail takes from outside.
    graph.remove(loop)
    graph.append(loop)
    return {value: inside.get(value, value) for value in outputs}


def _quiet_passes(
    extension: LoopExtension,
    nodes: RuleNodes,
    setting: ir.Value,
    least: ir.Value,
    trip_count: ir.Value,
) -> ir.Value:
    """Add, outside, how many passes the rule does not look at: those before its first look.

    It looks at all from ``least`` on, and at the last, which is the only one where the setting
    cannot hold.
    """

    def op(operator: str, inputs: Sequence[ir.Value], name: str) -> ir.Value:
        return extension.op(extension.graph, operator, inputs, name)

    one = extension.constant("one", _ONE)
    operator, bound = nodes.can_fire
    assert setting.dtype is not None
    limit = (
        trip_count
        if bound is None
        else extension.constant("never", np.array(bound, setting.dtype.numpy()))
    )
    can_fire = op(operator, [setting, limit], "can_fire")
    earliest = op("Where", [can_fire, least, trip_count], "earliest_look")
    first = op("Max", [op("Min", [earliest, trip_count], "bounded_look"), one], "first_look")
    return op("Sub", [first, one], "quiet_passes")


def _keep(look: Look, output: ir.Value, inside: ir.Value, is_open: ir.Value) -> None:
    """Let ``output`` be that of the last look at which the row was open."""
    name, rank = str(output.name), _rank(output)
    assert output.dtype is not None and rank is not None
    output.name = look.extension.names.fresh(f"{name}_of_pass")  # the loop gives it under its own
    rows = is_open  # [batch, 1]
    if rank == 1:
        rows = look.op("Squeeze", [is_open, look.axis(1)], "open_rows")
    elif rank > 2:
        axes = look.extension.constant("axes", np.arange(2, rank, dtype=np.int64))
        rows = look.op("Unsqueeze", [is_open, axes], "open_rows")
    before = look.extension.state(name, output.dtype)
    kept = look.op("Where", [rows, inside, before], f"{name}_so_far")
    look.states.append(State(before, kept, np.zeros([1] * rank, output.dtype.numpy()), name))


def _add_look(look: Look, nodes: RuleNodes, answers: Mapping[ir.Value, ir.Value]) -> ir.Value:
    """Fill the branch; return whether a row is still open, ``bool []``.

    ``used``, ``int64 [batch, 1]``, is the number of the pass at which a row left; 0: it is open.
    """
    extension = look.extension
    zero = extension.constant("zero", np.array(0, np.int64))
    before = extension.state("used", ir.DataType.INT64)
    is_open = look.op("Equal", [before, zero], "is_open")
    leaves = look.op("And", [is_open, nodes.fires(look)], "leaves")
    number = look.op("Add", [extension.body.inputs[0], look.number("one", 1)], "pass_number")
    used = look.op("Where", [leaves, number, before], "used")
    look.states.append(State(before, used, np.zeros((1, 1), np.int64), _USED))
    for output, inside in answers.items():
        _keep(look, output, inside, is_open)
    least = look.op("ReduceMin", [used], "least_used", keepdims=0)
    return look.op("Equal", [least, zero], "go_on")


def _finish_loop(look: Look, go_on: ir.Value, quiet: ir.Value) -> dict[str, ir.Value]:
    """Look after ``quiet`` passes without; return the states after the loop, by name."""
    extension, body = look.extension, look.extension.body
    otherwise = extension.branch("no_look")
    go_on.type = ir.TensorType(ir.DataType.BOOL)
    befores, afters, names = [body.inputs[1]], [go_on], ["condition"]
    for state in look.states:
        state.after.type = state.before.type
        befores.append(state.before)
        afters.append(state.after)
        names.append(f"{state.name}_of_pass")
    look.branch.outputs.extend(afters)
    for before in befores:
        same = extension.op(otherwise, "Identity", [before], f"same_{before.name}")
        same.type = before.type
        otherwise.outputs.append(same)
    now = extension.op(body, "GreaterOrEqual", [body.inputs[0], quiet], "look_now")
    condition, *results = extension.choose(now, look.branch, otherwise, names)
    condition.shape = ir.Shape(())
    old, body.outputs[0] = body.outputs[0], condition
    if (node := old.producer()) is not None and node.graph is body and not old.uses():
        body.remove(node, safe=True)
    return {
        state.name: extension.carry(state.before, state.initial, result, state.name)
        for state, result in zip(look.states, results, strict=True)
    }


def _replace_outputs(
    extension: LoopExtension,
    replaced: Mapping[ir.Value, ir.Value],
    used: ir.Value,
    trip_count: ir.Value,
) -> None:
    """Give the graph the answers of its loop, and ``layers_used`` as the last output."""
    graph = extension.graph
    for position, output in enumerate(tuple(graph.outputs)):
        if output in replaced:
            replaced[output].shape = output.shape
            graph.outputs[position] = replaced[output]
    zero, axis = (
        extension.constant(name, np.array(content, np.int64))
        for name, content in (("zero", 0), ("axis", [1]))
    )
    stayed = extension.after("Equal", [used, zero], "stayed")
    passes = extension.after("Where", [stayed, trip_count, used], "passes_of_row")
    layers_used = extension.after("Squeeze", [passes, axis], LAYERS_USED)
    layers_used.type = ir.TensorType(ir.DataType.INT64)
    shape = next(iter(replaced)).shape
    layers_used.shape = None if shape is None else ir.Shape([shape[0]])
    graph.outputs.append(layers_used)


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else value.shape.rank()
