"""Import what takes long, then wait to become a trainer: warm_start.py MODULE,MODULE,…

It waits for one line of JSON on standard input: "argv" (a script and its arguments), "env", "cwd"
and "log". An input that ends without a line ends the process. Run by path.
"""

import contextlib
import importlib
import json
import os
import runpy
import sys
import time


def main(modules: str) -> None:
    """Warm up, wait, and run the script as ``python script`` would.

    This file's folder is removed from the import path: its modules share names with other packages.
    """
    sys.path.pop(0)
    for name in modules.split(","):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    print("warm", flush=True)  # noqa: T201
    line = sys.stdin.readline()
    if not line:
        return
    message = json.loads(line)
    log = os.open(message["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.update(message["env"])
    os.environ["COSTOPT_BEGAN_AT"] = repr(time.time())
    os.chdir(message["cwd"])
    sys.argv = message["argv"]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))  # noqa: PTH100, PTH120
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
