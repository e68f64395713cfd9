"""Tests transactions, constraints and reflection through SQLAlchemy."""

import datetime
import decimal

import pandas
import pytest
import sqlalchemy
from sqlalchemy import CheckConstraint, Column, ForeignKey, Integer, String, UniqueConstraint, exc, orm, text


@pytest.fixture(params=["file", "memory"])
def engine(request, tmp_path):
    engine = sqlalchemy.create_engine(f"taut:///{tmp_path}/shop.taut?threads=1" if request.param == "file" else "taut://")
    yield engine
    engine.dispose()


class Base(orm.DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    __table_args__ = (CheckConstraint("age >= 0", name="customer_age"), UniqueConstraint("name", name="customer_name"))
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
    name: orm.Mapped[str] = orm.mapped_column(String(20))
    age: orm.Mapped[int] = orm.mapped_column(server_default=text("18"))


class Order(Base):
    __tablename__ = "Order"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
    number: orm.Mapped[int] = orm.mapped_column("Line, no", primary_key=True, autoincrement=False)
    customer_id: orm.Mapped[int | None] = orm.mapped_column(ForeignKey("customer.id", ondelete="CASCADE"), index=True)


def count(engine, table="customer"):
    with engine.connect() as connection:
        return connection.execute(text(f"SELECT count(*) FROM {table}")).scalar()


def insert(connection, identity, name):
    connection.execute(sqlalchemy.insert(Customer).values(id=identity, name=name))


def test_a_with_statement_that_fails_rolls_back(engine):
    Base.metadata.create_all(engine)
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:
        insert(connection, 1, "a")
        assert connection.execute(text("SELECT count(*) FROM customer")).scalar() == 1
        raise ZeroDivisionError
    assert count(engine) == 0
    with engine.begin() as connection:
        insert(connection, 1, "a")
    with engine.connect() as connection:
        insert(connection, 2, "b")
    assert count(engine) == 1, "the row of the connection that did not commit is rolled back"
    with engine.connect() as connection:
        insert(connection, 2, "b")
        connection.commit()
    assert count(engine) == 2


def test_a_session_of_the_orm_rolls_back(engine):
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add(Customer(id=1, name="a"))
        session.flush()
        session.rollback()
        session.add_all([Customer(id=2, name="b"), Order(id=1, number=1, customer_id=2)])
        session.commit()
        assert [(row.id, row.age) for row in session.query(Customer)] == [(2, 18)]
        session.add(Customer(id=2, name="again"))
        with pytest.raises(exc.IntegrityError):
            session.commit()
        session.rollback()
        session.delete(session.get(Customer, 2))
        session.commit()
    assert (count(engine), count(engine, '"Order"')) == (0, 0), "orders go with their customer"


def test_a_frame_that_fails_half_way_leaves_no_rows(engine):
    Base.metadata.create_all(engine)
    frame = pandas.DataFrame({"id": [1, 2, 2], "name": ["a", "b", "c"], "age": [1, 2, 3]})
    with pytest.raises(pandas.errors.DatabaseError, match="already exists"):
        frame.to_sql("customer", engine, index=False, if_exists="append", chunksize=1)
    assert count(engine) == 0


def test_a_failed_transaction_leaves_the_pool_as_it_was(tmp_path):
    engine = sqlalchemy.create_engine(f"taut:///{tmp_path}/shop.taut", pool_size=1, max_overflow=0)
    Base.metadata.create_all(engine)
    for _ in range(3):
        with pytest.raises(exc.DBAPIError), engine.connect() as connection:
            insert(connection, 1, "a")
            connection.execute(text("SELECT 1 / 0")).scalar()
        with engine.begin() as connection:
            assert connection.execute(text("SELECT count(*) FROM customer")).scalar() == 0
    engine.dispose()


def test_savepoints(engine):
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        insert(connection, 1, "a")
        with pytest.raises(exc.IntegrityError), connection.begin_nested():
            insert(connection, 2, "b")
            insert(connection, 1, "c")
        with connection.begin_nested():
            insert(connection, 3, "d")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT id FROM customer ORDER BY id")).scalars().all() == [1, 3]


def test_isolation_levels(engine):
    Base.metadata.create_all(engine)
    with engine.connect() as connection:
        assert connection.get_isolation_level() == connection.default_isolation_level == "REPEATABLE READ"
    with pytest.raises(exc.ArgumentError, match="READ COMMITTED"):
        engine.connect().execution_options(isolation_level="CHAOS")
    for level, sees in [("READ COMMITTED", 1), ("REPEATABLE READ", 0), ("SERIALIZABLE", 0)]:
        with engine.connect().execution_options(isolation_level=level) as reader:
            assert reader.get_isolation_level() == level
            assert reader.execute(text("SELECT count(*) FROM customer")).scalar() == 0
            with engine.begin() as writer:
                insert(writer, 1, "a")
            assert reader.execute(text("SELECT count(*) FROM customer")).scalar() == sees, level
        with engine.begin() as connection:
            connection.execute(sqlalchemy.delete(Customer))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        insert(connection, 1, "a")
    assert count(engine) == 1
    with engine.connect() as connection:
        assert connection.get_isolation_level() == "REPEATABLE READ", "the pool resets the level"


@pytest.mark.parametrize("level", [None, "READ COMMITTED", "SERIALIZABLE", "AUTOCOMMIT"])
def test_a_connection_returns_to_the_pool_at_the_level_of_its_engine(tmp_path, level):
    options = {} if level is None else {"isolation_level": level}
    engine = sqlalchemy.create_engine(f"taut:///{tmp_path}/shop.taut", pool_size=1, max_overflow=0, pool_timeout=1, **options)
    for other in ["REPEATABLE READ", "AUTOCOMMIT", "SERIALIZABLE"]:
        with engine.connect().execution_options(isolation_level=other) as connection:
            assert connection.get_isolation_level() == other
        with engine.connect() as connection:
            assert connection.get_isolation_level() == (level or "REPEATABLE READ")
    engine.dispose()


def test_unique_indexes_are_created_reflected_and_dropped(engine):
    metadata = sqlalchemy.MetaData()
    table = sqlalchemy.Table("places", metadata, sqlalchemy.Column("a", sqlalchemy.Integer),
                             sqlalchemy.Column("b", sqlalchemy.Integer), sqlalchemy.Column("c", sqlalchemy.Integer))  # fmt: skip
    index = sqlalchemy.Index("places_all", table.c.a, table.c.b.desc(), table.c.c, unique=True)
    metadata.create_all(engine)
    inspector = sqlalchemy.inspect(engine)
    assert [(found["name"], found["column_names"], found["unique"]) for found in inspector.get_indexes("places")] == [
        ("places_all", ["a", "b", "c"], True)
    ]
    assert inspector.get_unique_constraints("places") == []
    rows = sqlalchemy.insert(table).values([{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 4}])
    with engine.begin() as connection:
        connection.execute(rows)
    with pytest.raises(exc.IntegrityError), engine.begin() as connection:
        connection.execute(rows)
    index.drop(engine)
    with engine.begin() as connection:
        connection.execute(rows)


def test_constraints_are_created_and_reflected(engine):
    Base.metadata.create_all(engine)
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_pk_constraint("Order")["constrained_columns"] == ["id", "Line, no"]
    (key,) = inspector.get_foreign_keys("Order")
    assert (key["constrained_columns"], key["referred_table"], key["referred_columns"], key["options"]) == (
        ["customer_id"], "customer", ["id"], {"ondelete": "CASCADE"},
    )  # fmt: skip
    unique = inspector.get_unique_constraints("customer")
    assert [(key["name"], key["column_names"]) for key in unique] == [("customer_name", ["name"])]
    assert [check["name"] for check in inspector.get_check_constraints("customer")] == ["customer_age"]
    assert [index["column_names"] for index in inspector.get_indexes("Order")] == [["customer_id"]]
    assert {column["name"]: column["default"] for column in inspector.get_columns("customer")} == {
        "id": None, "name": None, "age": "18",
    }  # fmt: skip
    with pytest.raises(exc.IntegrityError), engine.begin() as connection:
        connection.execute(text("INSERT INTO customer VALUES (1, 'a', -1)"))
    with pytest.raises(exc.IntegrityError), engine.begin() as connection:
        connection.execute(sqlalchemy.insert(Order).values(id=1, number=1, customer_id=7))
    copy = sqlalchemy.MetaData()
    copy.reflect(engine)
    assert [column.name for column in copy.tables["Order"].primary_key] == ["id", "Line, no"]
    copy.drop_all(engine)
    copy.create_all(engine)
    assert sqlalchemy.inspect(engine).get_foreign_keys("Order") == [key]


def test_tables_that_refer_to_each_other(engine):
    metadata = sqlalchemy.MetaData()
    for name, other in [("a", "b"), ("b", "a")]:
        other_id = Column("other", Integer, ForeignKey(f"{other}.id", name=f"{name}_other"))
        sqlalchemy.Table(name, metadata, Column("id", Integer, primary_key=True), other_id)
    metadata.create_all(engine)
    assert sqlalchemy.inspect(engine).get_foreign_keys("a")[0]["referred_table"] == "b"
    metadata.drop_all(engine)
    assert sqlalchemy.inspect(engine).get_table_names() == []


def test_reflection_of_a_missing_table_is_an_error(engine):
    inspector = sqlalchemy.inspect(engine)
    for reflect in [
        inspector.get_columns, inspector.get_pk_constraint, inspector.get_unique_constraints, inspector.get_foreign_keys,
        inspector.get_check_constraints, inspector.get_indexes, inspector.get_table_options,
    ]:  # fmt: skip
        with pytest.raises(exc.NoSuchTableError):
            reflect("missing")


def test_a_foreign_key_to_a_column_with_a_parenthesis(engine):
    metadata = sqlalchemy.MetaData()
    sqlalchemy.Table("p", metadata, Column("a)b", Integer, primary_key=True))
    sqlalchemy.Table("c", metadata, Column("p", Integer, ForeignKey("p.a)b")))
    metadata.create_all(engine)
    assert sqlalchemy.inspect(engine).get_foreign_keys("c")[0]["referred_columns"] == ["a)b"]


def test_a_row_of_defaults(engine):
    table = sqlalchemy.Table("d", sqlalchemy.MetaData(), Column("n", Integer, server_default=text("5")))
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert())
        assert connection.execute(sqlalchemy.select(table)).all() == [(5,)]


def test_server_defaults_come_back_with_the_insert(engine):
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        customers = [Customer(id=1, name="a"), Customer(id=2, name="b", age=30)]
        session.add_all(customers)
        session.flush()
        assert [customer.age for customer in customers] == [18, 30]
        session.execute(sqlalchemy.update(Customer).values(age=Customer.age + 1))
        found = session.execute(sqlalchemy.delete(Customer).where(Customer.id == 2).returning(Customer.name, Customer.age))
        assert found.all() == [("b", 31)]
        session.commit()
    with engine.begin() as connection:
        rows = [{"id": i, "name": f"n{i}"} for i in range(10, 2_510)]
        insert = sqlalchemy.insert(Customer).returning(Customer.id, Customer.age, sort_by_parameter_order=True)
        assert connection.execute(insert, rows).all() == [(row["id"], 18) for row in rows]
        updated = connection.execute(
            sqlalchemy.update(Customer.__table__).where(Customer.id == sqlalchemy.bindparam("key")).values(age=5),
            [{"key": 10}, {"key": 11}, {"key": 9}],
        )
        assert updated.rowcount == 2


def test_rows_are_upserted(engine):
    from sqlalchemy.dialects.postgresql import insert

    Base.metadata.create_all(engine)
    statement = insert(Customer).values(id=1, name="a", age=5)
    upsert = statement.on_conflict_do_update(index_elements=["id"], set_={"age": statement.excluded.age + 1})
    with engine.begin() as connection:
        for _ in range(2):
            connection.execute(upsert)
        assert connection.execute(sqlalchemy.select(Customer.age)).scalars().all() == [6]


def test_times_intervals_and_lists_in_expressions(engine):
    table = sqlalchemy.Table("visit", sqlalchemy.MetaData(), Column("id", Integer), Column("at", sqlalchemy.DateTime))
    table.create(engine)
    day = datetime.timedelta(days=1)
    at = datetime.datetime(2020, 1, 5, 12)
    with engine.begin() as connection:
        connection.execute(table.insert(), [{"id": i, "at": at + i * day} for i in range(5)])

        def ids(condition):
            return connection.execute(sqlalchemy.select(table.c.id).where(condition).order_by(table.c.id)).scalars().all()

        assert ids(table.c.at > sqlalchemy.literal(at + 4 * day) - 2 * day) == [3, 4]
        assert ids(table.c.at - day <= at) == [0, 1]
        assert ids(table.c.id == sqlalchemy.any_(sqlalchemy.literal([1, 3], sqlalchemy.ARRAY(Integer)))) == [1, 3]
        assert connection.scalar(sqlalchemy.select(table.c.at + day).where(table.c.id == 0)) == at + day
        assert connection.scalar(sqlalchemy.select(sqlalchemy.literal(datetime.time(10, 30)))) == datetime.time(10, 30)
        assert connection.scalar(sqlalchemy.select(sqlalchemy.literal("a") + "b" + "c")) == "abc"
        assert connection.scalar(sqlalchemy.select(table.c.id / 2).where(table.c.id == 3)) == decimal.Decimal("1.5")
        over = sqlalchemy.func.sum(table.c.id).over(order_by=table.c.id, rows=(-1, 0))
        assert connection.execute(sqlalchemy.select(over).order_by(table.c.id)).scalars().all() == [0, 1, 3, 5, 7]
        page = sqlalchemy.select(table.c.id).order_by(table.c.id).offset(1)
        assert connection.execute(page.fetch(2)).scalars().all() == [1, 2]
        with pytest.raises(exc.CompileError, match="the dialect has no FETCH FIRST ... WITH TIES"):
            connection.execute(page.fetch(2, with_ties=True))
    for kind in (sqlalchemy.Interval, sqlalchemy.Time):
        with pytest.raises(exc.DBAPIError, match='of column "x" is not supported; allowed are boolean'):
            sqlalchemy.Table("u", sqlalchemy.MetaData(), Column("x", kind)).create(engine)


def test_views_and_schemas_are_reflected(engine):
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE VIEW adults AS SELECT id, name FROM customer WHERE age >= 18"))
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_view_names() == ["adults"] and "age >= 18" in inspector.get_view_definition("adults")
    assert [column["name"] for column in inspector.get_columns("adults")] == ["id", "name"]
    assert (inspector.get_pk_constraint("adults")["constrained_columns"], inspector.get_indexes("adults")) == ([], [])
    assert inspector.get_schema_names() == ["public"] and inspector.get_table_names("other") == []
    assert not inspector.has_table("customer", "other") and inspector.has_table("customer", "public")
    assert inspector.get_temp_table_names() == inspector.get_materialized_view_names() == []
    with pytest.raises(exc.NoSuchTableError, match="other.customer"):
        inspector.get_pk_constraint("customer", schema="other")
    with pytest.raises(exc.NoSuchTableError, match="missing"):
        inspector.get_view_definition("missing")
    assert inspector.get_table_comment("customer") == {"text": None}


def test_tables_of_other_schemas_are_created_and_reflected(engine):
    metadata = sqlalchemy.MetaData()
    Table, Column, Integer, String = sqlalchemy.Table, sqlalchemy.Column, sqlalchemy.Integer, sqlalchemy.String
    parent = Table("t", metadata, Column("a", Integer, primary_key=True), schema="sales")
    key = Column("b", Integer, sqlalchemy.ForeignKey(parent.c.a))
    child = Table("t", metadata, Column("id", Integer, sqlalchemy.Identity(), primary_key=True), key, comment="x")
    dotted = Table("a.b", metadata, Column("c", String), schema="sales")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.schema.CreateSchema("sales"))
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(parent.insert(), [{"a": 1}])
        connection.execute(child.insert(), [{"b": 1}])
        connection.execute(dotted.insert(), [{"c": "x"}])
        assert connection.execute(sqlalchemy.select(child.c.id).join(parent)).scalars().all() == [1]
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_schema_names() == ["public", "sales"] and inspector.has_schema("sales")
    assert inspector.get_table_names() == ["t"] and inspector.get_table_names("sales") == ["a.b", "t"]
    assert [column["name"] for column in inspector.get_columns("t", "sales")] == ["a"]
    assert [column["name"] for column in inspector.get_columns("a.b", "sales")] == ["c"]
    assert inspector.get_pk_constraint("t", "sales") == {"constrained_columns": ["a"], "name": "t_pkey"}
    (key,) = inspector.get_foreign_keys("t")
    assert (key["referred_schema"], key["referred_table"], key["referred_columns"]) == ("sales", "t", ["a"])
    assert inspector.get_table_comment("t") == {"text": "x"} and inspector.get_table_comment("t", "sales")["text"] is None
    reflected = Table("t", sqlalchemy.MetaData(), autoload_with=engine)
    assert [(key.column.table.schema, str(key.column)) for key in reflected.foreign_keys] == [("sales", "t.a")]
    metadata.drop_all(engine)


def test_comments_are_stored_and_reflected(engine):
    table = sqlalchemy.Table("t", sqlalchemy.MetaData(), Column("a", Integer, comment="it's a number"), comment="a t")
    table.create(engine)
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_table_comment("t") == {"text": "a t"}
    assert [column["comment"] for column in inspector.get_columns("t")] == ["it's a number"]
    with engine.begin() as connection:
        connection.execute(sqlalchemy.schema.DropTableComment(table))
    assert sqlalchemy.inspect(engine).get_table_comment("t") == {"text": None}


def test_sequences_give_keys(engine):
    metadata = sqlalchemy.MetaData()
    numbers = sqlalchemy.Sequence("numbers", start=10, increment=5, metadata=metadata)
    table = sqlalchemy.Table("t", metadata, Column("a", Integer, numbers, primary_key=True), Column("b", Integer))
    metadata.create_all(engine)
    with engine.begin() as connection:
        assert connection.execute(table.insert().values(b=1)).inserted_primary_key == (10,)
        connection.execute(table.insert(), [{"b": 2}, {"b": 3}])
        assert connection.execute(sqlalchemy.select(numbers.next_value())).scalar() == 25
        assert connection.scalar(numbers) == 30
        rows = connection.execute(sqlalchemy.select(table).order_by(table.c.a)).fetchall()
    assert [tuple(row) for row in rows] == [(10, 1), (15, 2), (20, 3)]
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_sequence_names() == ["numbers"] and inspector.has_sequence("numbers")
    assert not inspector.has_sequence("others")
    metadata.drop_all(engine)
    assert sqlalchemy.inspect(engine).get_sequence_names() == []


def test_names_with_commas_are_reflected(engine):
    metadata = sqlalchemy.MetaData()
    table = sqlalchemy.Table("t", metadata, *(Column(name, Integer) for name in ("a", "b, c", "c")))
    sqlalchemy.Index("i", table.c["b, c"], table.c.a)
    metadata.create_all(engine)
    assert sqlalchemy.inspect(engine).get_indexes("t")[0]["column_names"] == ["b, c", "a"]


def test_the_level_of_an_engine_and_of_an_option(engine):
    serializable = engine.execution_options(isolation_level="SERIALIZABLE")
    with serializable.connect() as connection:
        assert connection.get_isolation_level() == "SERIALIZABLE"
        assert connection.execute(text("SHOW transaction_isolation")).scalar() == "serializable"
    with engine.connect() as connection:
        assert connection.execute(text("SHOW transaction_isolation")).scalar() == "repeatable read"
        with pytest.raises(exc.InvalidRequestError, match="has already initialized"):
            connection.execution_options(isolation_level="SERIALIZABLE")


def test_nested_transactions_of_the_orm(engine):
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add(Customer(id=1, name="a"))
        for name in ("a", "b"):
            try:
                with session.begin_nested():
                    session.add(Customer(id=2, name=name))
            except exc.IntegrityError:
                assert name == "a"
        with session.begin_nested() as outer:
            session.add(Customer(id=3, name="c"))
            with session.begin_nested():
                session.add(Customer(id=4, name="d"))
            outer.rollback()
        session.commit()
        assert session.scalars(sqlalchemy.select(Customer.id).order_by(Customer.id)).all() == [1, 2]


def test_an_integer_key_is_an_identity():
    from taut.sqlalchemy import TautDialect

    def compiled(column, dialect):
        return str(sqlalchemy.schema.CreateTable(sqlalchemy.Table("t", sqlalchemy.MetaData(), column)).compile(dialect=dialect))

    dialect = TautDialect()
    key = {"primary_key": True}
    columns = {
        "id INTEGER GENERATED BY DEFAULT AS IDENTITY NOT NULL": Column("id", Integer, **key),
        "id BIGINT GENERATED BY DEFAULT AS IDENTITY NOT NULL": Column("id", sqlalchemy.BigInteger, **key),
        "id INTEGER NOT NULL": Column("id", Integer, autoincrement=False, **key),
        "id INTEGER DEFAULT 5 NOT NULL": Column("id", Integer, server_default=text("5"), **key),
        "id varchar NOT NULL": Column("id", String, **key),
        "id INTEGER GENERATED ALWAYS AS IDENTITY (START WITH 5) NOT NULL": Column(
            "id", Integer, sqlalchemy.Identity(always=True, start=5), **key
        ),
    }
    for expected, column in columns.items():
        assert expected in compiled(column, dialect), expected
    stored = Column("n", Integer, sqlalchemy.Computed("a + 1"), nullable=False)
    assert "n INTEGER GENERATED ALWAYS AS (a + 1) STORED NOT NULL" in compiled(stored, dialect)
    with pytest.raises(exc.CompileError, match="Taut has no virtual computed columns"):
        compiled(Column("n", Integer, sqlalchemy.Computed("1 + 1", persisted=False)), dialect)


class Note(Base):
    __tablename__ = "note"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    text: orm.Mapped[str]


def test_keys_are_generated(engine):
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        notes = [Note(text=f"n{i}") for i in range(2_500)]
        session.add_all(notes)
        session.commit()
        # The keys of the inserted rows follow the order in which the rows were added.
        assert [note.id for note in notes] == list(range(1, 2_501))
        session.execute(sqlalchemy.insert(Note).values(id=5_000, text="own key"))
        note = Note(text="next")
        session.add(note)
        session.commit()
        assert (note.id, session.get(Note, 2_500).text) == (2_501, "n2499")
    column, _ = sqlalchemy.inspect(engine).get_columns("note")
    assert column["autoincrement"] and column["identity"]["always"] is False and column["identity"]["start"] == 1
    copy = sqlalchemy.MetaData()
    copy.reflect(engine, only=["note"])
    copy.drop_all(engine)
    copy.create_all(engine)
    with engine.begin() as connection:
        assert connection.execute(copy.tables["note"].insert().values(text="x")).inserted_primary_key == (1,)


def test_indexes_on_expressions_and_partial_indexes_are_created_and_reflected(engine):
    metadata = sqlalchemy.MetaData()
    table = sqlalchemy.Table("users", metadata, Column("id", Integer), Column("email", sqlalchemy.String), Column("b, c", Integer))
    sqlalchemy.Index("users_email", sqlalchemy.func.lower(table.c.email), unique=True, postgresql_where=table.c.id > 0)
    sqlalchemy.Index("users_sum", (table.c.id + table.c["b, c"]).desc(), table.c["b, c"], unique=True)
    sqlalchemy.Index("users_first", sqlalchemy.func.coalesce(table.c.email, "a, (b"), postgresql_where="id > 5")
    metadata.create_all(engine)
    found = {index["name"]: index for index in sqlalchemy.inspect(engine).get_indexes("users")}
    assert found["users_email"] == {
        "name": "users_email", "unique": True, "column_names": [None], "expressions": ["lower(email)"],
        "dialect_options": {"postgresql_where": "id > 0"},
    }  # fmt: skip
    assert found["users_sum"] == {
        "name": "users_sum", "unique": True, "column_names": [None, "b, c"],
        "expressions": ['(id + "b, c")', "b, c"],
    }  # fmt: skip
    assert found["users_first"]["expressions"] == ["coalesce(email, 'a, (b')"]
    assert found["users_first"]["dialect_options"] == {"postgresql_where": "id > 5"}
    assert [column["name"] for column in sqlalchemy.inspect(engine).get_columns("users")] == ["id", "email", "b, c"]
    rows = sqlalchemy.insert(table).values([{"id": 1, "email": "Ann"}, {"id": 0, "email": "Ann"}])
    with engine.begin() as connection:
        connection.execute(rows)
    with pytest.raises(exc.IntegrityError), engine.begin() as connection:
        connection.execute(sqlalchemy.insert(table).values(id=2, email="ANN"))
    # Tables are copied by reflection, as migration tools do.
    copy = sqlalchemy.MetaData()
    copy.reflect(engine)
    copy.drop_all(engine)
    copy.create_all(engine)
    assert {index["name"]: index for index in sqlalchemy.inspect(engine).get_indexes("users")} == found
