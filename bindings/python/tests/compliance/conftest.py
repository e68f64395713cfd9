"""Runs SQLAlchemy's own suite for dialects: `pytest --dburi taut:////data/suite.taut` in this folder."""

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.testing import provision
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: F403


@provision.generate_driver_url.for_db("taut")
def _generate_driver_url(url, driver, query_str):
    return url


@provision.temp_table_keyword_args.for_db("taut")
def _temp_table_keyword_args(cfg, engine):
    return {"prefixes": ["TEMPORARY"]}


@provision.upsert.for_db("taut")
def _upsert(cfg, table, returning, *, set_lambda=None, sort_by_parameter_order=False, index_elements=None):
    statement = insert(table)
    keys = index_elements or [column.name for column in table.primary_key]
    if set_lambda:
        statement = statement.on_conflict_do_update(index_elements=keys, set_=set_lambda(statement.excluded))
    else:
        statement = statement.on_conflict_do_nothing()
    return statement.returning(*returning, sort_by_parameter_order=sort_by_parameter_order)


@provision.post_configure_engine.for_db("taut")
def _create_schemas(url, engine, follower_ident):
    # The suite expects the schemas in which its tests create tables.
    with engine.begin() as connection:
        for schema in ("test_schema", "test_schema_2"):
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
