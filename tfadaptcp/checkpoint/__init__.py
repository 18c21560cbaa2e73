"""The checkpoint directory: layout, claims, manifests, commit, retention, and the store they go through.

Nothing is imported here, so that the parts that need no TensorFlow can be used without it.
"""
