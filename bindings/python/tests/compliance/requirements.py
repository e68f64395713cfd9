"""Requirements of SQLAlchemy's own suite that Taut's dialect meets or does not meet.

SQLAlchemy's defaults apply to requirements that are neither in `OPEN` nor in `CLOSED`. `tests/test_compliance.py`
checks that `CLOSED` has a reason for every requirement that is closed.
"""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

#: Requirements that SQLAlchemy closes by default and Taut meets.
OPEN = """
    aggregate_order_by autocommit boolean_col_expressions check_constraint_reflection comment_reflection
    comment_reflection_full_unicode computed_columns computed_columns_default_persisted
    computed_columns_reflect_persisted computed_columns_stored create_or_replace_view create_table_as
    cross_schema_fk_reflection ctes ctes_on_dml
    ctes_with_update_delete ctes_with_values date_historic datetime_historic datetime_literals datetime_timezone
    datetime_timezone_historic delete_from except_ expression_server_defaults fetch_expression fetch_first
    fetch_no_order_by fk_constraint_option_reflection_ondelete_noaction float_or_double_precision_behaves_generically
    foreign_key_constraint_name_reflection foreign_key_constraint_option_reflection_ondelete identity_columns
    identity_columns_standard implicit_default_schema index_ddl_if_exists indexes_with_expressions infinity_floats
    inline_check_constraint_reflection intersect isolation_level mod_operator_as_percent_sign non_updating_cascade
    nullsordering order_by_label_with_expression percent_schema_names precision_numerics_enotation_small
    precision_numerics_many_significant_digits precision_numerics_retains_significant_digits
    reflect_indexes_with_expressions reflect_table_options reflects_pk_names regexp_match regexp_replace savepoints
    create_temp_table_as has_temp_table temp_table_comment_reflection temp_table_names temp_table_reflect_indexes
    temp_table_reflection temporary_tables temporary_views schema_create_delete schemas server_defaults skip_autocommit_rollback supports_bitwise_and supports_bitwise_or
    supports_bitwise_shift
    supports_bitwise_xor supports_distinct_on table_ddl_if_exists table_value_constructor timestamp_microseconds
    tuple_in unicode_ddl unique_constraints_reflect_as_index update_from views window_functions window_range
    window_range_non_numeric window_range_numeric
""".split()

_NO_MATERIALIZED = "there are no materialized views"
_NO_UPDATE_ACTION = "ON UPDATE takes NO ACTION only"
_NO_JSON = "JSON is text: there are no operators such as ->"
_NO_LASTROWID = "cursors have no lastrowid: keys come by RETURNING"
_NO_FETCH = "the dialect compiles FETCH FIRST as LIMIT, which takes a number of rows"

#: Requirements that Taut does not meet, with the reason.
CLOSED = {
    "array_type": "a column cannot have the type of an array",
    "async_dialect": "the driver is not asynchronous",
    "column_collation_reflection": "text has one order, that of its bytes",
    "computed_columns_virtual": "computed columns are stored",
    "constraint_comment_reflection": "a constraint has no comment",
    "datetime_interval": "a column cannot have the type interval",
    "dbapi_lastrowid": _NO_LASTROWID,
    "default_schema_name_switch": "the dialect takes names without a schema as names in public",
    "deferrable_fks": "constraints are checked at the end of each statement",
    "emulated_lastrowid": _NO_LASTROWID,
    "emulated_lastrowid_even_with_sequences": _NO_LASTROWID,
    "fetch_offset_with_options": _NO_FETCH,
    "fetch_percent": _NO_FETCH,
    "fetch_ties": _NO_FETCH,
    "fk_constraint_option_reflection_ondelete_restrict": "RESTRICT is the same as NO ACTION, the default",
    "fk_constraint_option_reflection_onupdate_restrict": _NO_UPDATE_ACTION,
    "foreign_key_constraint_option_reflection_onupdate": _NO_UPDATE_ACTION,
    "foreign_keys_reflect_as_index": "a foreign key has no index of its own",
    "implements_get_lastrowid": _NO_LASTROWID,
    "index_reflects_included_columns": "an index has no INCLUDE",
    "indexes_check_column_order": "an index that is not unique keeps its first two columns only",
    "json_deserializer_binary": "JSON is read as str, not as bytes",
    "json_type": _NO_JSON,
    "legacy_unconditional_json_extract": _NO_JSON,
    "like_escapes": "LIKE with ESCAPE takes a literal as its pattern",
    "materialized_views": _NO_MATERIALIZED,
    "materialized_views_reflect_pk": _NO_MATERIALIZED,
    "nvarchar_types": "varchar is the only type of text",
    "on_update_cascade": _NO_UPDATE_ACTION,
    "order_by_collation": "text has one order, that of its bytes",
    "reflect_indexes_with_ascdesc": "the order of an index makes no difference, and is not stored",
    "reflect_indexes_with_ascdesc_as_expression": "the order of an index makes no difference, and is not stored",
    "reflect_tables_no_columns": "a table has at least one column",
    "repeated_column_foreign_keys": "a foreign key names a column once",
    "repeated_remote_col_foreign_keys": "a foreign key names a column once",
    "supports_bitwise_not": "there is no operator ~ of one number",
    "time": "a column cannot have the type time",
    "time_microseconds": "a column cannot have the type time",
    "time_timezone": "a column cannot have the type time",
    "two_phase_transactions": "there are no prepared transactions",
    "unique_index_reflect_as_unique_constraints": "a unique index is an index, no constraint",
    "uuid_data_type": "UUID is text",
}


def _open():
    return property(lambda self: exclusions.open())


def _closed(reason):
    return property(lambda self: exclusions.skip_if(exclusions.BooleanPredicate(True, reason)))


Requirements = type(
    "Requirements",
    (SuiteRequirements,),
    {
        **{name: _open() for name in OPEN},
        **{name: _closed(reason) for name, reason in CLOSED.items()},
    },
)
