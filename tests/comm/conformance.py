"""The checks that every transport must pass; a test file subclasses them in a few lines."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from ddpflow.errors import CollectiveTimeout, CommError, MismatchError, PeerError
from ddpflow.testing import run_ranks
from tests.comm import bodies, faults


class Conformance:
    """Set ``backend``; ``checks_calls`` says whether the transport compares the ranks' calls by itself."""

    backend: ClassVar[str] = ""
    checks_calls: ClassVar[bool] = True

    def run(self, fn: Callable[..., Any], n: int, *args: Any, **options: Any) -> list[Any]:
        """Runs a body on n ranks of this transport."""
        return run_ranks(fn, n, self.backend, args=args, **options)

    def failures(self, fn: Callable[..., Any], n: int, *args: Any, **options: Any) -> list[Any]:
        """Runs a body that fails, and returns each rank's exception or result."""
        return self.run(fn, n, *args, return_exceptions=True, **options)

    @pytest.mark.parametrize("n", [2, 3, 4])
    def test_reductions(self, n):
        """Every dtype and reduce op gives the sum in rank order, bit for bit, or a DtypeError that says why."""
        self.run(bodies.reductions, n, timeout_s=60)

    @pytest.mark.parametrize("n", [1, 5, 8])
    def test_reductions_more_worlds(self, n):
        """A world of one, of odd and of larger size."""
        self.run(bodies.reductions, n, ("float32", "bfloat16", "int64"), timeout_s=60)

    @pytest.mark.parametrize("n", [1, 2, 3, 4])
    def test_copies(self, n):
        """Gathers, broadcasts, scatters and exchanges move every dtype unchanged."""
        self.run(bodies.copies, n, timeout_s=60)

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_uneven_exchange(self, n):
        """all_to_all takes different counts for each pair of ranks, none included."""
        self.run(bodies.uneven_exchange, n)

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_layouts(self, n):
        """Transposed, sliced, reversed, empty and 0-d arrays are copied in and out."""
        self.run(bodies.layouts, n)

    @pytest.mark.parametrize("n", [1, 2])
    def test_refusals(self, n):
        """Bad arguments are refused before anything is sent."""
        self.run(bodies.refusals, n)

    @pytest.mark.parametrize("n", [2, 3])
    def test_messages(self, n):
        """Send and recv match by peer and tag, in order, from any rank too."""
        self.run(bodies.messages, n)

    @pytest.mark.parametrize("count", [0, 1000, 300_001])
    def test_large_messages(self, count):
        """Two ranks send to each other at once, whatever the size."""
        self.run(bodies.large_messages, 2, count)

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_asynchronous(self, n):
        """Operations in flight end in order and may be waited for in any."""
        self.run(bodies.asynchronous, n)

    @pytest.mark.parametrize("n", [1, 2])
    def test_progress(self, n):
        """Polling moves an operation to its end."""
        self.run(bodies.progress_ends_works, n)

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_registered_memory(self, n):
        """Memory from group.empty takes part in collectives, whole and in slices."""
        self.run(bodies.registered, n)

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_helpers(self, n):
        """Coalesced forms, object collectives and all_ranks_agree."""
        self.run(bodies.coalesced, n)
        self.run(bodies.objects, n)
        self.run(bodies.agreement, n)

    def test_subgroups(self):
        """Groups of some ranks work beside each other, and ranks outside are told."""
        self.run(bodies.subgroups, 4)

    def test_local_synchronization(self):
        """A group can be made by its members alone."""
        self.run(faults.local_group, 3)

    def test_second_thread(self):
        """Another thread of a rank may communicate."""
        self.run(bodies.from_a_second_thread, 2)

    def test_deterministic(self):
        """One digest for all ranks, runs and piece sizes."""
        digests = {d for pieces in (1, 3, 100) for d in self.run(bodies.digest, 4, pieces)}
        assert len(digests) == 1

    # Faults

    @pytest.mark.parametrize(
        ("what", "shown"),
        [
            ("dtype", ["float32[4]", "float64[4]", "differ in dtype"]),
            ("count", ["float32[4]", "float32[5]", "differ in count"]),
            ("operation", ["all_reduce #1", "barrier #1", "operation"]),
            ("copy", ["all_reduce #1", "broadcast #1", "operation"]),
            ("reduce op", ["op=SUM", "op=MAX", "differ in reduce op"]),
            ("root", ["root=0", "root=1", "differ in root"]),
            ("order", ["all_reduce #1", "all_gather #1"]),
            ("large count", ["float64[100000]", "float64[100001]"]),
            ("async", ["all_reduce #3", "float64[3]", "float64[4]"]),
        ],
    )
    @pytest.mark.parametrize("n", [2, 3])
    def test_mismatch(self, n, what, shown):
        """Ranks that make different calls all get an error with both calls in full."""
        if not self.checks_calls:
            pytest.skip("this transport does not compare the ranks' calls")
        for rank, error in enumerate(self.failures(faults.mismatch, n, what)):
            assert isinstance(error, CommError), (rank, error)
            # A rank that is not concerned may learn from its peers that they have failed.
            assert isinstance(error, MismatchError | PeerError), (rank, error)
            for text in shown:
                assert text in str(error), (rank, str(error))

    def test_broken_group_says_why(self):
        """After a failed collective each later call of the group repeats the reason."""
        if not self.checks_calls:
            pytest.skip("this transport does not compare the ranks' calls")
        for texts in self.run(faults.broken_group, 2):
            assert len(texts) == 3
            assert all("float64[4]" in text and "float64[5]" in text for text in texts), texts
            assert "broken by an earlier error" in texts[1]
            assert "broadcast cannot run" in texts[2]

    def test_missing_rank(self):
        """A deadline names the operation, its number, the caller's text, and just the ranks that did not come."""
        errors = self.failures(faults.absent, 3, [1], 1.0)
        for rank in (0, 2):
            assert isinstance(errors[rank], CollectiveTimeout), errors[rank]
            text = str(errors[rank])
            assert text.startswith(f"rank {rank}: all_reduce #2 (bucket 2: fc.weight) got no answer from rank 1 in 1 s")

    def test_all_missing_ranks_are_named(self):
        """Every waiting rank names all that did not come, and none that came and gave up."""
        errors = self.failures(faults.absent, 4, [1, 3], 1.0)
        for rank in (0, 2):
            assert isinstance(errors[rank], CollectiveTimeout), errors[rank]
            assert "got no answer from ranks 1, 3 " in str(errors[rank])

    def test_late_rank(self):
        """A rank that comes after the others' deadline gets an error too, not a wrong result or a wait of its own."""
        first, second = self.run(faults.late, 2)
        assert first[0].startswith("CollectiveTimeout: rank 0: all_reduce #2 got no answer from rank 1")
        assert second[0].startswith("PeerError: rank 1: all_reduce #2")
        assert "rank 0" in second[0].removeprefix("PeerError: rank 1")

    def test_exception_reaches_the_others(self):
        """When a rank raises, the waiting ones raise PeerError with its exception."""
        errors = self.failures(faults.raise_in_one, 3)
        assert isinstance(errors[1], ValueError)
        for rank in (0, 2):
            assert isinstance(errors[rank], PeerError), errors[rank]
            assert "rank 1 raised ValueError: bad batch" in str(errors[rank])

    def test_leaving_early(self):
        """A rank that has left is named with both collective numbers."""
        error = self.failures(faults.leave_early, 2)[0]
        assert isinstance(error, PeerError), error
        assert "rank 1 has finished" in str(error)
        assert "after collective #2 while rank 0 is at #3" in str(error)
        assert "join()" in str(error)

    def test_abort(self):
        """abort(reason) ends the peers' waits with the reason."""
        for error in [self.failures(faults.abort_by_hand, 3)[r] for r in (0, 2)]:
            assert isinstance(error, PeerError), error
            assert "rank 1 aborted the group: loss is nan" in str(error)

    def test_wrong_message(self):
        """A message of another length than the receiver expects is an error there."""
        error = self.failures(faults.wrong_message, 2)[1]
        assert isinstance(error, MismatchError), error
        assert "float64[4]" in str(error) and "float64[3]" in str(error) and "rank 0" in str(error)

    def test_differing_groups(self):
        """new_group with different lists is an error on all ranks that shows both."""
        for error in self.failures(faults.differing_groups, 3):
            assert isinstance(error, MismatchError), error
            assert "[0, 1]" in str(error) and "[0, 2]" in str(error)

    def test_new_group_names_who_did_not_call(self):
        """A rank that does not call new_group is named."""
        for error in self.failures(faults.new_group_without_one, 3)[:2]:
            assert isinstance(error, CollectiveTimeout), error
            assert "ranks {2} did not come" in str(error)

    def test_survivors_go_on(self):
        """After a rank hangs, the others destroy the group and make a new one without it."""
        assert self.run(faults.survivors, 4) == [3.0, 3.0, 3.0, 3.0]

    def test_survivors_of_an_error_go_on(self):
        """After a rank has raised, the others can make a group of themselves and use it."""
        results = self.failures(faults.survivors_of_an_error, 3)
        assert results[0] == results[2] == 2.0 and isinstance(results[1], ValueError)

    def test_unwaited_send_arrives(self):
        """A message that was sent before its sender left is delivered."""
        assert self.run(faults.unwaited_send, 2)[1] == 5.0

    def test_monitored_barrier(self):
        """monitored_barrier names all missing ranks on every rank that came."""
        errors = self.failures(faults.monitored, 4, [1, 3])
        for rank in (0, 2):
            assert isinstance(errors[rank], CollectiveTimeout), errors[rank]
            assert "ranks 1, 3 did not arrive" in str(errors[rank])

    def test_waiting_costs_little(self):
        """A rank that waits two seconds for a late peer uses less than 0.2 s of processor time."""
        assert self.run(faults.cheap_wait, 2)[0] < 0.2

    def test_stall_warning(self):
        """A long wait is told once, with the call and the ranks that are missing, and goes on."""
        first, second, third = self.run(faults.stalled, 3)
        assert first == third == [("all_reduce #2 (bucket 2: fc.weight)", [1])] and second == []
