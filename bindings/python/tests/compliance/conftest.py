"""Runs SQLAlchemy's own suite for dialects: `pytest --dburi taut:////data/suite.taut` in this folder."""

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.testing import provision
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: F403


@provision.generate_driver_url.for_db("taut")
def _generate_driver_url(url, driver, query_str):
    return url


@provision.upsert.for_db("taut")
def _upsert(cfg, table, returning, *, set_lambda=None, sort_by_parameter_order=False, index_elements=None):
    statement = insert(table)
    keys = index_elements or [column.name for column in table.primary_key]
    if set_lambda:
        statement = statement.on_conflict_do_update(index_elements=keys, set_=set_lambda(statement.excluded))
    else:
        statement = statement.on_conflict_do_nothing()
    return statement.returning(*returning, sort_by_parameter_order=sort_by_parameter_order)


@provision.drop_all_schema_objects_pre_tables.for_db("taut")
def _create_schemas(cfg, eng):
    # The suite expects the schemas in which its tests create tables.
    with eng.begin() as connection:
        for schema in (cfg.test_schema, cfg.test_schema_2):
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
