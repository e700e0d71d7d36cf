"""Random graphs of few names and few functions, so that keys collide."""

from random import Random
from typing import Any

from raddle.protocol.core.messages.client import (
    FORM_ARGS,
    FORM_VALUE,
    Graph,
    GraphTask,
)

from .core_peers import SimClient, digest

NAMES = b"f g h f flaky g h f boom g h killer".split()
"""What the functions of keys do, unless a key changes its function."""
ANNOTATIONS = ({"retries": 3}, {"resources": {"GPU": 1}}, {"priority": 5})


class Graphs:
    """Makes graphs. ``mutation`` is how often a key changes function or links."""

    def __init__(self, random: Random, n_names: int, mutation: float) -> None:
        self.random = random
        self.n_names = n_names
        self.mutation = mutation

    def graph(self, client: SimClient, call: int) -> Graph:
        """One submission; its futures are made known to the client."""
        random = self.random
        n = random.randint(1, max(4, self.n_names // 3))
        numbers = sorted(random.sample(range(self.n_names), n))
        embedded: dict[str, int] = {}
        defined: list[tuple[int, Any]] = []
        tasks = []
        for order, number in enumerate(numbers):
            deps = self._deps(client, number, numbers[:order], embedded)
            public = [
                client.futures[embedded[d]].key if d in embedded else d for d in deps
            ]
            tasks.append(self._task(client, number, deps, public, defined))
        wanted = random.sample(tasks, random.randint(1, min(3, n)))
        wants = tuple((t.key, client.future(str(t.key), t.token)) for t in wanted)
        client.calls[call] = tuple(fid for _, fid in wants)
        policy = random.choice((None, None, None, None, "raise"))
        return Graph(
            call, tuple(tasks), wants, tuple(embedded.items()), tuple(defined),
            ANNOTATIONS, policy,
        )  # fmt: skip

    def _deps(
        self,
        client: SimClient,
        number: int,
        lower: list[int],
        embedded: dict[str, int],
    ) -> tuple[str, ...]:
        random = self.random
        deps = []
        for other in lower:
            linked = (number * other) % 3 > 0
            if random.random() < self.mutation:
                linked = not linked
            if linked:
                deps.append(f"k{other}")
        if random.random() < 0.15 and client.futures:
            fid = random.choice(list(client.futures))
            embedded[f"ref-{fid}"] = fid
            deps.append(f"ref-{fid}")
        if random.random() < 0.03:
            deps.append(f"k{random.randrange(self.n_names)}")
        return tuple(deps)

    def _task(
        self,
        client: SimClient,
        number: int,
        deps: tuple[str, ...],
        public: list[str],
        defined: list[tuple[int, Any]],
    ) -> GraphTask:
        random = self.random
        key = f"k{number}"
        name = NAMES[number % len(NAMES)]
        if random.random() < self.mutation:
            name = random.choice(NAMES)
        token = digest(key.encode(), name, *(p.encode() for p in public)) + bytes(8)
        skeleton = None
        if random.random() < 0.05:
            skeleton, token = token, token[:8] + random.randbytes(8)
        if not deps and random.random() < 0.1:
            value = b"data-" + name
            token = digest(value) + bytes(8)
            return GraphTask(key, token, None, FORM_VALUE, 0, (value,), (), -1, number)
        if name not in client.functions:
            client.functions[name] = len(client.functions) + 1
            defined.append((client.functions[name], (b"function", name)))
        fn = client.functions[name]
        annotation = random.choice((-1, -1, 0, 0, 1, 2))
        return GraphTask(
            key, token, skeleton, FORM_ARGS, fn, (name,), deps, annotation, number
        )
