"""Keeps our ops out of exported graphs.

A SavedModel must load where tfadaptcp is not installed. Tracked ops have the
signatures of the TFRA ops they stand for, so renaming them while the graph is
being exported is enough. `_verify_ops` is the one place every SavedModel export
(Keras `save`, `tf.saved_model.save`, TFRA's `de_save_model`) passes with the
complete graph, before op lists are derived from it.
"""

from tensorflow.python.saved_model import save as saved_model_save

from tfadaptcp.embeddings import tracking


def use_stock_ops(graph_def) -> None:
    """Renames the tracked ops in a GraphDef, functions included, to TFRA's."""
    for nodes in [graph_def.node] + [function.node_def for function in graph_def.library.function]:
        for node in nodes:
            if node.op.startswith(tracking.TRACKED_PREFIX):
                node.op = tracking.STOCK_PREFIX + node.op[len(tracking.TRACKED_PREFIX):]


def install() -> None:
    """Hooks SavedModel export, in this process, once."""
    verify = saved_model_save._verify_ops
    if getattr(verify, "_tfadaptcp", False):
        return

    def verify_ops(graph_def, namespace_whitelist):
        use_stock_ops(graph_def)
        return verify(graph_def, namespace_whitelist)

    verify_ops._tfadaptcp = True
    saved_model_save._verify_ops = verify_ops
