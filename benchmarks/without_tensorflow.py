"""Makes `tfadaptcp.policies` importable without what `import tfadaptcp` brings along: TensorFlow, and the native library.

For processes that need nothing else of it; to be imported first.
"""

import importlib.machinery
import importlib.util
import sys

if "tfadaptcp" not in sys.modules:
    _spec = importlib.machinery.PathFinder.find_spec("tfadaptcp")
    sys.modules["tfadaptcp"] = importlib.util.module_from_spec(_spec)  # its __init__ is not run
