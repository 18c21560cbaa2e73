"""One target per C++ test, benchmark and tool, named after its file."""

def cc_programs(tests, tools, deps):
    """Declares a cc_test for each of `tests` and a cc_binary for each of `tools`.

    Args:
      tests: GoogleTest sources; the GoogleTest is the system's (Debian: libgtest-dev).
      tools: sources with a main().
      deps: what all of them use.
    """
    for source in tests:
        native.cc_test(
            name = _name(source),
            srcs = [source],
            linkopts = ["-lgtest_main", "-lgtest", "-pthread"],
            deps = deps,
        )
    for source in tools:
        native.cc_binary(
            name = _name(source),
            srcs = [source],
            linkopts = ["-pthread"],
            deps = deps,
        )

def _name(source):
    return source.split("/")[-1][:-len(".cc")]
