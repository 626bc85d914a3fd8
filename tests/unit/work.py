"""Counting work instead of seconds: how many of the interpreter's operations a piece of code takes."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def operations(action: Callable[[], object]) -> int:
    """Bytecode instructions executed by `action`. The same each time, on any machine, however busy."""
    count = 0

    def trace(frame: FrameType, _: str, __: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return trace_opcode

    def trace_opcode(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return trace_opcode

    before = sys.gettrace()
    is_collecting = gc.isenabled()
    gc.disable()  # finalizers of what other tests have left behind are no work of this action
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        if is_collecting:
            gc.enable()
    return count
