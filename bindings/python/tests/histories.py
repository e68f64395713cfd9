"""Checks whether the appends and reads of transactions are possible at their isolation level.

Lists make the check possible (Kingsbury and Alvaro, "Elle", VLDB 2020): each element is appended once, so the elements
of a list show which transactions precede a read, and in which order. Committed transactions are the nodes of a graph
with these edges:

    ww   from the transaction that appended an element to the one that appended the next element of its list,
    wr   from the transaction that appended the last element of a list to a transaction that read this list,
    rw   from a transaction that read a list to the one that appended the next element.

At SERIALIZABLE, the graph has no cycle. At REPEATABLE READ, every cycle has two consecutive rw edges (Cerone and
Gotsman, PODC 2016). At READ COMMITTED, every cycle has at least one rw edge.

A set is a list whose order is unknown. A transaction that read it follows all transactions whose elements it read, and
precedes all others.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

READ_COMMITTED, SNAPSHOT, SERIALIZABLE = "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"


@dataclass
class Transaction:
    """`operations` are ("append", key, element) and ("read", key, elements), in order."""

    operations: list
    is_committed: bool = True

    def appends(self):
        return [(key, element) for kind, key, element in self.operations if kind == "append"]

    def reads(self):
        return [(key, elements) for kind, key, elements in self.operations if kind == "read"]


def problems(transactions, level, is_set=lambda key: False):
    """Returns the violations of a level as strings. The last transaction must have read the final lists."""
    history = History(transactions, is_set)
    found = history.find_wrong_reads(level)
    # Contradictory orders of lists define no edges, so cycles are searched only if all reads are possible.
    return found or [history.format_cycle(cycle) for cycle in cycles(history.edges(), level)]


class History:
    def __init__(self, transactions, is_set):
        self.transactions = transactions
        self.is_set = is_set
        self.writers = {}
        self.last_appends = set()
        for number, transaction in enumerate(transactions):
            last = {}
            for key, element in transaction.appends():
                self.writers[key, element] = number
                last[key] = element
            self.last_appends.update(last.items())
        self.orders = defaultdict(tuple)
        for key, elements in (read for transaction in self.committed() for read in transaction.reads()):
            self.orders[key] = max(self.orders[key], elements, key=len)

    def committed(self):
        return [transaction for transaction in self.transactions if transaction.is_committed]

    def find_wrong_reads(self, level):
        """Returns the impossible reads, and the committed elements that the final lists lack."""
        found = []
        for number, transaction in enumerate(self.transactions):
            if not transaction.is_committed:
                continue
            for key, elements in transaction.reads():
                found += [f"T{number} read {what}" for what in self.check_read(number, key, elements)]
            found += [f"T{number} read {what}" for what in self.check_repeated_reads(transaction, level)]
        final = dict(self.transactions[-1].reads())
        for (key, element), writer in self.writers.items():
            if self.transactions[writer].is_committed and element not in final.get(key, ()):
                found.append(f"element {element} of T{writer} is lost from list {key}: {final.get(key)}")
        return found

    def check_read(self, number, key, elements):
        if len(set(elements)) < len(elements):
            yield f"an element twice in list {key}: {elements}"
        for element in elements:
            writer = self.writers.get((key, element))
            if writer is None:
                yield f"element {element} in list {key}, which nobody appended"
            elif not self.transactions[writer].is_committed:
                yield f"element {element} in list {key}, of T{writer}, which was rolled back"
        if self.is_set(key):
            other_writers = {self.writers.get((key, element)) for element in elements} - {number, None}
            for writer in other_writers:
                missing = {each for each in self.transactions[writer].appends() if each[0] == key}
                missing = {element for _, element in missing} - set(elements)
                if missing:
                    yield f"set {key} with some elements of T{writer}, without {sorted(missing)}"
            return
        if tuple(elements) != self.orders[key][: len(elements)]:
            yield f"list {key} as {elements}, where another read was {self.orders[key]}"
        last = (key, elements[-1]) if elements else None
        if last and last not in self.last_appends and self.writers.get(last) != number:
            yield f"list {key} up to {elements[-1]}, after which T{self.writers.get(last)} appended more"

    def check_repeated_reads(self, transaction, level):
        """Yields the reads that contradict earlier operations of the same transaction."""
        known, own = {}, defaultdict(list)
        for kind, key, value in transaction.operations:
            if kind == "append":
                own[key].append(value)
                if key in known:
                    known[key] = (*known[key], value)
                continue
            same = set if self.is_set(key) else tuple
            if not set(own[key]) <= set(value):
                yield f"list {key} as {value}, without its own {own[key]}"
            if level != READ_COMMITTED and key in known and same(known[key]) != same(value):
                yield f"list {key} as {value}, which was {known[key]} to it before"
            known[key] = tuple(value)

    def edges(self):
        """Returns the edges between transactions: {from: {to: kinds}}."""
        edges = defaultdict(lambda: defaultdict(set))

        def edge(before, after, kind):
            if before != after:
                edges[before][after].add(kind)

        appended = defaultdict(set)
        for (key, element), writer in self.writers.items():
            if self.transactions[writer].is_committed:
                appended[key].add(element)
        writers_by_key = {}
        for key, order in self.orders.items():
            if self.is_set(key):
                continue
            writers = [self.writers[key, element] for element in order]
            for before, after in zip(writers, writers[1:]):
                edge(before, after, "ww")
            writers_by_key[key] = writers
        for number, transaction in enumerate(self.transactions):
            if not transaction.is_committed:
                continue
            for key, elements in transaction.reads():
                if self.is_set(key):
                    for element in elements:
                        edge(self.writers[key, element], number, "wr")
                    for element in appended[key] - set(elements):
                        edge(number, self.writers[key, element], "rw")
                    continue
                length = len(elements)
                if length > 0:
                    edge(writers_by_key[key][length - 1], number, "wr")
                if length < len(writers_by_key[key]):
                    edge(number, writers_by_key[key][length], "rw")
        return edges

    def format_cycle(self, cycle):
        """Formats a cycle and the operations of its transactions."""
        arrows = " ".join(f"T{number} -{kind}->" for number, kind in cycle)
        numbers = sorted({number for number, _ in cycle})
        operations = [f"  T{number}: {self.transactions[number].operations}" for number in numbers]
        return "\n".join([f"{arrows} T{cycle[0][0]}", *operations])


def cycles(edges, level):
    """Returns one forbidden cycle per strongly connected component.

    A cycle is a list of (transaction, kind of the edge to the next transaction).
    """
    steps = STEPS[level](edges)
    return [shortest_cycle(component, steps) for component in components(steps) if len(component) > 1]


def read_committed_steps(edges):
    """Returns the steps of forbidden cycles: ww and wr edges, as {node: {next node: kind of edge}}.

    A node is (transaction, flag). Only `snapshot_steps` uses the flag. Here it is always False.
    """
    return {
        (before, False): {(after, False): kind for after, kinds in to.items() for kind in kinds if kind != "rw"}
        for before, to in edges.items()
    }


def snapshot_steps(edges):
    """Returns the steps of forbidden cycles: all edges, but no two rw edges in a row.

    A node is (transaction, whether an rw edge led to it).
    """
    steps = defaultdict(dict)
    for before, to in edges.items():
        for after, kinds in to.items():
            for kind in kinds:
                for by_read in (False, True) if kind != "rw" else (False,):
                    steps[before, by_read][after, kind == "rw"] = kind
    return steps


def serializable_steps(edges):
    """Returns the steps of forbidden cycles: all edges. The flag of a node is always False."""
    return {
        (before, False): {(after, False): min(kinds) for after, kinds in to.items()} for before, to in edges.items()
    }


STEPS = {
    READ_COMMITTED: read_committed_steps,
    SNAPSHOT: snapshot_steps,
    SERIALIZABLE: serializable_steps,
}


def components(steps):
    """Returns the strongly connected components (Tarjan). Does not recurse, because histories are long."""
    numbers, lowest, on_stack, stack, found = {}, {}, set(), [], []
    for root in list(steps):
        if root in numbers:
            continue
        work = [(root, iter(steps.get(root, ())))]
        numbers[root] = lowest[root] = len(numbers)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in numbers:
                    numbers[other] = lowest[other] = len(numbers)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(steps.get(other, ()))))
                    break
                if other in on_stack:
                    lowest[node] = min(lowest[node], numbers[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == numbers[node]:
                    component = set()
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    found.append(component)
    return found


def shortest_cycle(component, steps):
    """Returns a shortest cycle through one node of a component."""
    start = min(component)
    predecessors, queue = {}, deque([start])
    while start not in predecessors:
        node = queue.popleft()
        for other in steps.get(node, ()):
            if other in component and other not in predecessors:
                predecessors[other] = node
                queue.append(other)
    cycle, node = [], start
    while not cycle or node != start:
        before = predecessors[node]
        cycle.append((before[0], steps[before][node]))
        node = before
    return cycle[::-1]
