"""Which chains of transforms torch can do: what it refuses for its own operations is no case."""

from dataclasses import replace

from tests.chains import FORWARD, REVERSE, Link
from tests.chains_draw import COMMON, Grammar


def fits(case, link):
    """Whether torch 2.13 can put this link around the chain, with its own operations."""
    return _in_order(case.kinds, link.kind) and _on_shapes(case, link) and _saves(case, link)


def _in_order(kinds, kind):
    """What may stand around what."""
    inside = set(kinds)
    if "linearize" in inside:
        return False  # within another transform it gives garbage, or fails
    if kind == "linearize":
        # "Nested forward mode AD is not supported"; and jacrev writes its basis in place, which
        # linearize forgets: wrong numbers for torch's own operations
        return not inside & {*FORWARD, "backward", "jacrev"}
    if kind == "backward":
        after = kinds[kinds.index("checkpoint") :] if "checkpoint" in inside else ()
        return not {*after} & {"vmap", *FORWARD}
    if "backward" in inside:  # no requires_grad inside torch.func
        return kind == "checkpoint" and not inside & {*REVERSE}
    # torch.func's reverse mode does not support saved tensor hooks, which checkpoint uses
    if kind == "checkpoint":
        return not inside & {*REVERSE}
    return not (kind in REVERSE and "checkpoint" in inside)


def _on_shapes(case, link):
    """Where torch fails for some shapes or layouts."""
    x, y = case.shapes
    first = len(case.input_shapes[case.argument]), len(case.plan.outputs[case.output])
    if link.kind in FORWARD and case.layouts[0] == "expanded":
        return False  # forward mode writes tangents in the layout of the argument
    if link.kind in FORWARD and case.order and case.dtype == "float32":
        # a 0-d tangent that is zero becomes float64 times a number: pytorch/pytorch#90065
        return min(first) > 0 and not case.together
    if link.kind == "vmap" and link.size == 0 and "jvp" in case.kinds:
        return False  # a view of a dual whose tangent has no batch: "has_fw_view" assert
    empty = {"vmap": link.size == 0, "jacrev": 0 in y, "jacfwd": 0 in x}
    if empty.get(link.kind):
        # a batch of none of 0-d tensors: "select(): index 0 out of range"
        return first[0] > len(case.row.cores[case.argument]) and not case.together
    return True


def _saves(case, link):
    """Where the op itself fails under a checkpoint: a mode that it has no rule for.

    The other mode is the transpose of the rule, by torch.func.grad, which does not support
    the saved tensor hooks of checkpoint.
    """
    kinds, op = (*case.kinds, link.kind), case.row.op
    if "checkpoint" not in kinds:
        return True
    last = len(kinds) - kinds[::-1].index("checkpoint")
    forward, backward = {*kinds} & {*FORWARD}, "backward" in kinds[:last]
    return not (forward and (backward or not op.jvp)) and (op.vjp is not None or not backward)


def fits_compiled(case, link):
    """Whether torch.compile can be put around the chain with this link."""
    kinds = (*case.kinds, link.kind)
    if sum(kind in FORWARD for kind in kinds) > 1:
        return False  # Dynamo fails to trace nested forward modes of torch's own operations
    if link.kind in FORWARD and case.layouts[0] == "sliced":
        return False  # and a view of a dual that was sliced: "has_fw_view() INTERNAL ASSERT"
    if link.kind == "vmap" and "jacfwd" in case.kinds:
        return False  # nor a vmap of jacfwd: pytorch/pytorch#160508
    known = replace(case, links=(*case.links, link)).known  # it wraps our errors in its own
    return known and (link.kind != "vmap" or link.size > 0) and fits(case, link)


GRAMMAR = Grammar((*COMMON * 3, *("backward", "checkpoint") * 2, "linearize"), fits)
# compiled whole: Dynamo cannot be called inside torch.func
COMPILED = Grammar(fits=fits_compiled, heavy=(), depth=3, order=2, last=(Link("compiled"),))
