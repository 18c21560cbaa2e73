"""Headers and libraries that Python packages carry, as a Bazel repository.

The interpreter is $ADAPTCP_PYTHON, else .venv/bin/python of the work tree. tools/native.py is
asked for the same paths and flags that setup.py uses, so that both build the same library.
"""

_ASK = """
import json, pathlib, tempfile
from tools import native
cache = pathlib.Path(tempfile.mkdtemp()) / "flags.json"
compile_flags, link_flags = native.tensorflow_flags(cache)
tf, tfra = native.check_versions()
include = compile_flags[compile_flags.index("-isystem") + 1]
print("ANSWER" + json.dumps({
    "include": include,
    "copts": [f for f in compile_flags if f.startswith("-D")],
    "framework": str(pathlib.Path(include).parent / "libtensorflow_framework.so.2"),
    "json": str(native.json_include()),
    "tf": tf, "tfra": tfra}))
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "json",
    hdrs = glob(["json/**/*.hpp"]),
    includes = ["json"],
)

cc_import(
    name = "framework",
    shared_library = "libtensorflow_framework.so.2",
)

cc_library(
    name = "tensorflow",
    hdrs = glob(["tensorflow/**/*"], exclude = ["**/*.cc"]),
    includes = ["tensorflow"],
    defines = [{defines}],
    deps = [":framework"],
)
"""

def _implementation(context):
    root = context.path(Label("//:WORKSPACE")).dirname
    python = context.os.environ.get("ADAPTCP_PYTHON") or str(root) + "/.venv/bin/python"
    result = context.execute(
        [python, "-c", _ASK],
        environment = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout = 120,
    )
    if result.return_code != 0 or "ANSWER" not in result.stdout:
        fail("%s could not tell where TensorFlow's headers are (`make deps` installs it, " % python +
             "ADAPTCP_PYTHON names another Python):\n" + result.stderr)
    answer = json.decode(result.stdout.split("ANSWER")[1])
    context.symlink(answer["include"], "tensorflow")
    context.symlink(answer["json"], "json")
    context.symlink(answer["framework"], "libtensorflow_framework.so.2")
    defines = [flag[len("-D"):] for flag in answer["copts"]] + [
        'ADAPTCP_TF_VERSION=\\\\\\"%s\\\\\\"' % answer["tf"],
        'ADAPTCP_TFRA_VERSION=\\\\\\"%s\\\\\\"' % answer["tfra"],
    ]
    context.file("BUILD", _BUILD.format(
        defines = ", ".join(['"%s"' % define for define in defines]),
    ))

python_packages = repository_rule(
    implementation = _implementation,
    environ = ["ADAPTCP_PYTHON"],
    local = True,
)
