"""A Ray cluster on this machine, in a process of its own; told what to do on stdin: `nodes.py COUNT [GPUS]`.

Each line in is a command, each line out an answer: `kill NODE` ends a node and the processes of its workers at once,
`add` brings a new one, `behead` ends the head as if its machine were switched off.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import psutil
from ray.cluster_utils import Cluster

SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20}


def kill(cluster: Cluster, node: Any) -> int:
    """End a node as a power cut would: its workers first, so that nothing of it can finish."""
    raylet = psutil.Process(next(p.process.pid for p in node.all_processes["raylet"]))
    workers = [p for p in raylet.children(recursive=True) if "ray::_Body" in " ".join(p.cmdline())]
    for process in [*workers, raylet]:
        process.send_signal(signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    return len(workers)


def behead(cluster: Cluster) -> int:
    """End the processes of the head, and nothing else."""
    running = [p.process.pid for kind in cluster.head_node.all_processes.values() for p in kind]
    for process_id in running:
        os.kill(process_id, signal.SIGKILL)
    return len(running)


def main() -> None:
    """Start, say where, then obey until stdin ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints what it likes; answers go out alone
    cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "num_cpus": 0, "include_dashboard": False})
    gpus = int(sys.argv[2]) if len(sys.argv) > 2 else 0  # logical ones: numbers that Ray counts, without a device
    nodes = [cluster.add_node(**SMALL, num_gpus=gpus) for _ in range(int(sys.argv[1]))]
    print(json.dumps(cluster.address), file=out)
    for line in sys.stdin:
        command, _, which = line.strip().partition(" ")
        if command == "add":
            nodes.append(cluster.add_node(**SMALL))
            print(json.dumps(len(nodes)), file=out)
        elif command == "behead":
            print(json.dumps(behead(cluster)), file=out)
        else:
            print(json.dumps(kill(cluster, nodes[int(which)])), file=out)
    cluster.shutdown()


if __name__ == "__main__":
    main()
