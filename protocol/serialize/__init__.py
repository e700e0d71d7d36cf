"""How values, functions and exceptions become bytes: pickle 5, then cloudpickle.

A serialized value is a tuple of frames: the pickle, then its big buffers, which
are views of the value's own memory. The scheduler never calls the loading half.
"""

from ..core.messages.base import Frames
from .exceptions import dump_exception, load_exception
from .functions import dumps_function
from .pickles import INBAND_MAX, copy_frames, dumps, loads, nbytes_of
from .sizes import sizeof

__all__ = [
    "INBAND_MAX",
    "Frames",
    "copy_frames",
    "dump_exception",
    "dumps",
    "dumps_function",
    "load_exception",
    "loads",
    "nbytes_of",
    "sizeof",
]
