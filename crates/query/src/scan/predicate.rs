//! From DataFusion's expressions to the tests that storage evaluates.
//!
//! A conjunct on one column that is a comparison, range, list, prefix or null test becomes a [`ColumnTest`], which
//! blocks answer on encoded data. Anything else becomes a [`RowTest`] that evaluates the expression itself on decoded
//! columns. Both are exact. Where an expression merely implies bounds or a list of values of a column (a disjunction, the
//! arms of a partitioned join filter, the structs of a join on several columns), these are added as a further test, so that
//! indexes, zone maps and partitions can use them.
//!
//! A dynamic filter is a hint: whoever made it looks at the rows again. The engine compares floating point bit by bit in it,
//! where the two zeros are one number in SQL, so what a hint says of floating point is taken as far as it becomes column tests.
//!
//! `c IS NULL OR ...`, which is what a sort that puts nulls first lets through for its first rows, is a row test that says
//! what it amounts to where `c` has no nulls.

mod implied;

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
    NotExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::PhysicalExpr;
use taut_types::{
    ColumnIndex, ColumnTest, Key, LogicalType, Predicate, RowTest, Schema, Test, UnlessNull, equal_numbers, key_at,
};

use self::implied::{both_of, implied_tests, unless_null};

/// The predicate that holds where all of these expressions over the columns of a table are true.
///
/// Dynamic filters are taken as they are at this moment.
///
/// # Errors
/// When an expression names a column that the table does not have, which is a bug of the planner.
pub fn translate(expressions: &[Arc<dyn PhysicalExpr>], schema: &Schema, arrow: &SchemaRef) -> Result<Predicate> {
    let mut translation = Translation { schema, arrow, predicate: Predicate::default() };
    for expression in expressions {
        translation.add(expression, false)?;
    }
    Ok(translation.predicate)
}

struct Translation<'a> {
    schema: &'a Schema,
    arrow: &'a SchemaRef,
    predicate: Predicate,
}

impl Translation<'_> {
    fn add(&mut self, expression: &Arc<dyn PhysicalExpr>, is_hint: bool) -> Result<()> {
        if let Some(dynamic) = expression.downcast_ref::<DynamicFilterPhysicalExpr>() {
            return self.add(&dynamic.current()?, true);
        }
        if let Some(binary) = expression.downcast_ref::<BinaryExpr>()
            && *binary.op() == Operator::And
        {
            self.add(binary.left(), is_hint)?;
            return self.add(binary.right(), is_hint);
        }
        if let Some(literal) = expression.downcast_ref::<Literal>()
            && *literal.value() == ScalarValue::Boolean(Some(true))
        {
            return Ok(());
        }
        if let Some(test) = column_test(expression, self.schema) {
            add_test(&mut self.predicate.column_tests, test);
            return Ok(());
        }
        for (column, test) in implied_tests(expression, self.schema) {
            add_test(&mut self.predicate.column_tests, ColumnTest::new(column, test));
        }
        if is_hint && compares_floating_point(expression, self.arrow)? {
            return Ok(());
        }
        let test = ExpressionTest {
            unless_null: unless_null(expression, self.schema),
            ..ExpressionTest::new(expression, self.arrow)?
        };
        self.predicate.row_tests.push(Arc::new(test));
        Ok(())
    }
}

/// Whether somewhere in an expression an operator or a list has floating point before it, alone or as a field of a struct.
fn compares_floating_point(expression: &Arc<dyn PhysicalExpr>, arrow: &SchemaRef) -> Result<bool> {
    fn is_floating(data_type: &DataType) -> bool {
        match data_type {
            DataType::Struct(fields) => fields.iter().any(|field| is_floating(field.data_type())),
            DataType::Dictionary(_, values) => is_floating(values),
            data_type => data_type.is_floating(),
        }
    }
    expression.exists(|node| {
        let operand = match (node.downcast_ref::<BinaryExpr>(), node.downcast_ref::<InListExpr>()) {
            (Some(binary), _) => binary.left(),
            (_, Some(list)) => list.expr(),
            _ => return Ok(false),
        };
        Ok(is_floating(&operand.data_type(arrow)?))
    })
}

/// Adds a test to a conjunction. Bounds and lists of one column become one test: the two of `BETWEEN` are then one range for
/// an index, and the column is read once.
pub fn add_test(tests: &mut Vec<ColumnTest>, test: ColumnTest) {
    for other in tests.iter_mut().filter(|other| other.column == test.column && !other.negated && !test.negated) {
        if let Some(both) = both_of(&other.test, &test.test) {
            other.test = both;
            return;
        }
    }
    tests.push(test);
}

/// The test that is equivalent to an expression on one column, where there is one.
fn column_test(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<ColumnTest> {
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        if let (Some(compared), Some(literal)) = (compared(binary.left(), schema), literal_of(binary.right())) {
            return comparison_as(compared, *binary.op(), literal);
        }
        if let (Some(literal), Some(compared)) = (literal_of(binary.left()), compared(binary.right(), schema)) {
            return comparison_as(compared, binary.op().swap()?, literal);
        }
        return None;
    }
    if let Some(not) = expression.downcast_ref::<NotExpr>() {
        let inner = column_test(not.arg(), schema)?;
        return Some(ColumnTest { negated: !inner.negated, ..inner });
    }
    if let Some(is_null) = expression.downcast_ref::<IsNullExpr>() {
        return Some(ColumnTest::new(column_of(is_null.arg())?, Test::Null));
    }
    if let Some(is_not_null) = expression.downcast_ref::<IsNotNullExpr>() {
        return Some(ColumnTest { column: column_of(is_not_null.arg())?, test: Test::Null, negated: true });
    }
    if let Some(list) = expression.downcast_ref::<InListExpr>() {
        let literals = list.list().iter().map(literal_of);
        return list_test_as(compared(list.expr(), schema)?, literals, list.negated());
    }
    if let Some(like) = expression.downcast_ref::<LikeExpr>() {
        return like_test(like, schema);
    }
    let column = column_of(expression)?;
    (schema.column(column).logical_type == LogicalType::Boolean)
        .then(|| ColumnTest::new(column, Test::Range { low: 1, high: 1 }))
}

fn column_of(expression: &Arc<dyn PhysicalExpr>) -> Option<ColumnIndex> {
    expression.downcast_ref::<Column>().map(|column| column.index().into())
}

/// A column, and the type with whose values it is compared: its own, or one of wider integers, in which its numbers are the
/// same. The planner leaves such a cast where a literal is past all numbers of the column, and in a join of both types.
fn compared(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<(ColumnIndex, LogicalType)> {
    let Some(cast) = expression.downcast_ref::<CastExpr>() else {
        let column = column_of(expression)?;
        return Some((column, schema.column(column).logical_type));
    };
    let column = column_of(cast.expr())?;
    let (from, to) = (schema.column(column).logical_type, LogicalType::from_arrow(cast.cast_type())?);
    let is_wider = match to {
        LogicalType::Integer => from == LogicalType::SmallInt,
        LogicalType::BigInt => matches!(from, LogicalType::SmallInt | LogicalType::Integer),
        _ => false,
    };
    is_wider.then_some((column, to))
}

fn literal_of(expression: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    expression.downcast_ref::<Literal>().map(Literal::value)
}

/// A test that no value passes: what a comparison with null amounts to.
fn never(column: ColumnIndex, logical_type: LogicalType) -> ColumnTest {
    ColumnTest::one_of(column, logical_type, [])
}

/// A literal as a key of a type; the inner `None` is null, the outer one says that the types differ.
pub fn key_of(value: &ScalarValue, logical_type: LogicalType) -> Option<Option<Key>> {
    if let ScalarValue::Dictionary(_, inner) = value {
        return key_of(inner, logical_type);
    }
    if value.is_null() {
        return Some(None);
    }
    Some(key_at(&as_keys(&value.to_array().ok()?, logical_type)?, logical_type, 0))
}

/// An array with values of a type as the one of which keys are read; `None` where it has others.
fn as_keys(array: &ArrayRef, logical_type: LogicalType) -> Option<ArrayRef> {
    let wanted = logical_type.arrow();
    let same = LogicalType::from_arrow(array.data_type()) == Some(logical_type);
    match () {
        () if *array.data_type() == wanted => Some(Arc::clone(array)),
        () if same && logical_type.is_bytes() => cast(array, &wanted).ok(),
        () => None,
    }
}

/// `column operator literal` as a test, where the literal has the column's type.
pub fn comparison(
    column: ColumnIndex,
    operator: Operator,
    literal: &ScalarValue,
    schema: &Schema,
) -> Option<ColumnTest> {
    comparison_as((column, schema.column(column).logical_type), operator, literal)
}

/// As [`comparison`], of a column with a literal of this type.
fn comparison_as(
    (column, logical_type): (ColumnIndex, LogicalType),
    operator: Operator,
    literal: &ScalarValue,
) -> Option<ColumnTest> {
    let comparable = matches!(
        operator,
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    if !comparable {
        return None;
    }
    let test = match key_of(literal, logical_type)? {
        None => return Some(never(column, logical_type)),
        Some(Key::Number(number)) => number_test(operator, equal_numbers(number, logical_type)),
        Some(Key::Bytes(bytes)) => bytes_test(operator, bytes),
    };
    Some(ColumnTest { column, test, negated: operator == Operator::NotEq })
}

fn number_test(operator: Operator, equal: RangeInclusive<i128>) -> Test {
    let (first, last) = equal.into_inner();
    let (low, high) = match operator {
        // No key is i128::MIN or i128::MAX: the widest type has 38 digits.
        Operator::Lt => (i128::MIN, first.saturating_sub(1)),
        Operator::LtEq => (i128::MIN, last),
        Operator::Gt => (last.saturating_add(1), i128::MAX),
        Operator::GtEq => (first, i128::MAX),
        _ => (first, last),
    };
    Test::Range { low, high }
}

fn bytes_test(operator: Operator, bytes: Box<[u8]>) -> Test {
    let (low, high) = match operator {
        Operator::Lt => (Bound::Unbounded, Bound::Excluded(bytes)),
        Operator::LtEq => (Bound::Unbounded, Bound::Included(bytes)),
        Operator::Gt => (Bound::Excluded(bytes), Bound::Unbounded),
        Operator::GtEq => (Bound::Included(bytes), Bound::Unbounded),
        _ => return Test::BytesOneOf(Arc::from([bytes])),
    };
    Test::BytesRange { low, high }
}

/// `column IN (literals)`, or `NOT IN`, as a test, where all literals have the column's type.
pub fn list_test<'a>(
    column: ColumnIndex,
    literals: impl Iterator<Item = Option<&'a ScalarValue>>,
    negated: bool,
    schema: &Schema,
) -> Option<ColumnTest> {
    list_test_as((column, schema.column(column).logical_type), literals, negated)
}

/// As [`list_test`], of a column with literals of this type.
fn list_test_as<'a>(
    (column, logical_type): (ColumnIndex, LogicalType),
    literals: impl Iterator<Item = Option<&'a ScalarValue>>,
    negated: bool,
) -> Option<ColumnTest> {
    let keys = literals.map(|literal| key_of(literal?, logical_type)).collect::<Option<Vec<_>>>()?;
    if negated && keys.contains(&None) {
        // `x NOT IN (..., NULL)` is never true; `x IN (..., NULL)` is true for the others alone.
        return Some(never(column, logical_type));
    }
    Some(ColumnTest { negated, ..ColumnTest::one_of(column, logical_type, keys.into_iter().flatten()) })
}

/// `LIKE 'prefix%'` as a range, `LIKE 'word'` as an equality; other patterns are left to the expression.
fn like_test(like: &LikeExpr, schema: &Schema) -> Option<ColumnTest> {
    let column = column_of(like.expr())?;
    if like.case_insensitive() || schema.column(column).logical_type != LogicalType::Varchar {
        return None;
    }
    let pattern = literal_of(like.pattern())?.try_as_str()??;
    let (prefix, is_prefix) = match pattern.strip_suffix('%') {
        Some(prefix) => (prefix, true),
        None => (pattern, false),
    };
    if prefix.contains(['%', '_', '\\']) {
        return None;
    }
    let test = if is_prefix {
        let low: Box<[u8]> = prefix.as_bytes().into();
        let high = successor_of_prefix(prefix.as_bytes()).map_or(Bound::Unbounded, Bound::Excluded);
        Test::BytesRange { low: Bound::Included(low), high }
    } else {
        Test::BytesOneOf(Arc::from([prefix.as_bytes().into()]))
    };
    Some(ColumnTest { column, test, negated: like.negated() })
}

/// The least string above all that begin with a prefix; none above those of 0xff alone.
fn successor_of_prefix(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor.into())
}

/// An expression as a test on decoded columns.
#[derive(Debug)]
struct ExpressionTest {
    columns: Vec<ColumnIndex>,
    /// Over a batch of exactly `columns`.
    expression: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    unless_null: Option<UnlessNull>,
}

impl ExpressionTest {
    fn new(expression: &Arc<dyn PhysicalExpr>, arrow: &SchemaRef) -> Result<Self> {
        let (expression, places, schema) = over_own_columns(expression, arrow)?;
        let columns = places.into_iter().map(ColumnIndex::from).collect();
        Ok(Self { columns, expression, schema, unless_null: None })
    }
}

impl RowTest for ExpressionTest {
    fn columns(&self) -> &[ColumnIndex] {
        &self.columns
    }

    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanArray, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        // The values of a dictionary may hold a null even where the column is declared without any.
        let fields = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new_with_options(schema, columns.to_vec(), &options)?;
        let result = self.expression.evaluate(&batch).and_then(|value| value.into_array(rows));
        match result {
            Ok(array) => match array.as_boolean_opt() {
                Some(flags) => Ok(flags.clone()),
                None => Err(ArrowError::ComputeError(format!("a filter of type {}", array.data_type()))),
            },
            Err(error) => Err(ArrowError::ExternalError(Box::new(error))),
        }
    }

    fn unless_null(&self) -> Option<&UnlessNull> {
        self.unless_null.as_ref()
    }
}

/// An expression over the columns of a table as one over a batch of those that it names, with these and their fields.
pub fn over_own_columns(
    expression: &Arc<dyn PhysicalExpr>,
    arrow: &SchemaRef,
) -> Result<(Arc<dyn PhysicalExpr>, Vec<usize>, SchemaRef)> {
    let mut places: Vec<usize> = collect_columns(expression).iter().map(Column::index).collect();
    places.sort_unstable();
    let schema = Arc::new(arrow.project(&places)?);
    let expression = map_columns(expression, |column| {
        let place = places.binary_search(&column.index()).ok()?;
        Some(Column::new(column.name(), place))
    })?;
    Ok((expression, places, schema))
}

/// An expression with every column replaced; dynamic filters keep their connection to who fills them.
///
/// # Errors
/// When there is no replacement for a column.
pub fn map_columns(
    expression: &Arc<dyn PhysicalExpr>,
    replacement: impl Fn(&Column) -> Option<Column>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let mapped = Arc::clone(expression).transform_up(|node| {
        let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
        match replacement(column) {
            Some(column) => Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>)),
            None => internal_err!("column {column} of a pushed filter is not in the scan"),
        }
    })?;
    Ok(mapped.data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Float64Array, Int32Array, Int64Array, StringViewArray, StructArray};
    use datafusion::arrow::buffer::NullBuffer;
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::DFSchema;
    use datafusion::prelude::*;
    use taut_types::Column as TautColumn;

    fn schema() -> Schema {
        Schema::new(vec![
            TautColumn::new("i", LogicalType::Integer, true),
            TautColumn::new("t", LogicalType::Varchar, true),
            TautColumn::new("d", LogicalType::Decimal { precision: 15, scale: 2 }, true),
            TautColumn::new("b", LogicalType::Boolean, true),
            TautColumn::new("f", LogicalType::Double, true),
        ])
        .unwrap()
    }

    fn predicate(expression: Expr) -> Predicate {
        let schema = schema();
        let arrow = schema.arrow();
        let context = SessionContext::new();
        let planned =
            context.create_physical_expr(expression, &DFSchema::try_from(arrow.as_ref().clone()).unwrap()).unwrap();
        super::translate(&[planned], &schema, &arrow).unwrap()
    }

    #[test]
    fn comparisons_lists_prefixes_and_nulls_become_column_tests() {
        let greater = Test::Range { low: (1 << 40) + 1, high: i128::MAX };
        let cases: Vec<(Expr, Test, bool)> = vec![
            (col("i").lt(lit(5)), Test::Range { low: i128::MIN, high: 4 }, false),
            (lit(5).lt(col("i")), Test::Range { low: 6, high: i128::MAX }, false),
            (col("i").not_eq(lit(5)), Test::Range { low: 5, high: 5 }, true),
            (col("i").in_list(vec![lit(3), lit(1)], true), Test::OneOf(Arc::from([1, 3])), true),
            (
                col("t").eq(lit(ScalarValue::Utf8View(Some("x".to_owned())))),
                Test::BytesOneOf(Arc::from([Box::from(*b"x")])),
                false,
            ),
            (
                col("t").like(lit(ScalarValue::Utf8View(Some("ab%".to_owned())))),
                Test::BytesRange { low: Bound::Included((*b"ab").into()), high: Bound::Excluded((*b"ac").into()) },
                false,
            ),
            // In wider integers, one of which the column cannot hold.
            (datafusion::logical_expr::cast(col("i"), DataType::Int64).gt(lit(1_i64 << 40)), greater.clone(), false),
            (lit(1_i64 << 40).lt(datafusion::logical_expr::cast(col("i"), DataType::Int64)), greater, false),
            (
                datafusion::logical_expr::cast(col("i"), DataType::Int64)
                    .in_list(vec![lit(1_i64 << 40), lit(3_i64)], false),
                Test::OneOf(Arc::from([3, 1 << 40])),
                false,
            ),
            (col("t").is_null(), Test::Null, false),
            (col("t").is_not_null(), Test::Null, true),
            (col("b"), Test::Range { low: 1, high: 1 }, false),
            (!col("b"), Test::Range { low: 1, high: 1 }, true),
        ];
        for (expression, test, negated) in cases {
            let predicate = predicate(expression.clone());
            assert!(predicate.row_tests.is_empty(), "{expression}");
            assert_eq!(predicate.column_tests.len(), 1, "{expression}");
            assert_eq!((&predicate.column_tests[0].test, predicate.column_tests[0].negated), (&test, negated));
        }
    }

    #[test]
    fn bounds_and_lists_of_one_column_become_one_test() {
        let text = |text: &str| lit(ScalarValue::Utf8View(Some(text.to_owned())));
        let never = Test::BytesOneOf(Arc::from([]));
        let cases = [
            (col("i").between(lit(3), lit(8)), vec![(Test::Range { low: 3, high: 8 }, false)]),
            (col("i").gt(lit(5)).and(col("i").lt(lit(2))), vec![(Test::Range { low: 6, high: 1 }, false)]),
            (
                col("i").gt(lit(4)).and(col("i").in_list(vec![lit(1), lit(5), lit(9)], false)).and(col("i").lt(lit(9))),
                vec![(Test::OneOf(Arc::from([5])), false)],
            ),
            (
                col("i").gt(lit(4)).and(col("i").not_eq(lit(7))).and(col("i").is_not_null()).and(col("i").lt(lit(9))),
                vec![
                    (Test::Range { low: 5, high: 8 }, false),
                    (Test::Range { low: 7, high: 7 }, true),
                    (Test::Null, true),
                ],
            ),
            (
                col("i").is_null().and(col("i").gt(lit(2))),
                vec![(Test::Null, false), (Test::Range { low: 3, high: i128::MAX }, false)],
            ),
            (
                col("t").gt_eq(text("b")).and(col("t").lt(text("d"))).and(col("t").gt(text("b"))),
                vec![(
                    Test::BytesRange { low: Bound::Excluded((*b"b").into()), high: Bound::Excluded((*b"d").into()) },
                    false,
                )],
            ),
            (col("t").gt_eq(text("b")).and(col("t").lt(text("b"))), vec![(never.clone(), false)]),
            (col("t").gt_eq(text("c")).and(col("t").lt_eq(text("b"))), vec![(never, false)]),
            (
                col("t").gt_eq(text("b")).and(col("t").lt_eq(text("b"))),
                vec![(
                    Test::BytesRange { low: Bound::Included((*b"b").into()), high: Bound::Included((*b"b").into()) },
                    false,
                )],
            ),
            (
                col("t").in_list(vec![text("a"), text("c")], false).and(col("t").like(text("c%"))),
                vec![(Test::BytesOneOf(Arc::from([Box::from(*b"c")])), false)],
            ),
        ];
        for (expression, expected) in cases {
            let found = predicate(expression.clone());
            let tests: Vec<_> = found.column_tests.into_iter().map(|test| (test.test, test.negated)).collect();
            assert!(found.row_tests.is_empty() && tests == expected, "{expression}: {tests:?}");
        }
    }

    #[test]
    fn what_a_cast_changes_is_evaluated_after_it() {
        for expression in [
            datafusion::logical_expr::cast(col("i"), DataType::Int16).eq(lit(5_i16)),
            datafusion::logical_expr::cast(col("i"), DataType::Float64).gt(lit(1.5)),
            datafusion::logical_expr::cast(col("d"), DataType::Int64).gt(lit(5_i64)),
            datafusion::logical_expr::cast(col("b"), DataType::Int64).eq(lit(1_i64)),
        ] {
            let predicate = predicate(expression.clone());
            assert!(predicate.column_tests.is_empty() && predicate.row_tests.len() == 1, "{expression}");
        }
    }

    #[test]
    fn what_is_left_is_evaluated_and_its_bounds_are_used() {
        let either = col("i").eq(lit(3)).and(col("t").eq(lit("x"))).or(col("i").eq(lit(9)));
        let bounded = predicate(either);
        assert_eq!(bounded.column_tests, [ColumnTest::new(ColumnIndex(0), Test::OneOf(Arc::from([3, 9])))]);
        assert_eq!(bounded.row_tests.len(), 1);
        assert_eq!(bounded.row_tests[0].columns(), [ColumnIndex(0), ColumnIndex(1)]);
    }

    #[test]
    fn the_arms_of_a_partitioned_join_are_united() {
        let text = |text: &str| lit(ScalarValue::Utf8View(Some(text.to_owned())));
        let arm = |numbers: [i32; 4], word: &str| {
            let listed = col("i").in_list(numbers.map(lit).to_vec(), false);
            col("i").gt_eq(lit(2)).and(listed).and(col("t").in_list(vec![text(word), text("other")], false))
        };
        let modulo = || col("i") % lit(2);
        let mut case =
            when(modulo().eq(lit(0)), arm([1, 2, 8, 9], "x")).when(modulo().eq(lit(1)), arm([3, 8, 5, 7], "y"));
        let united = predicate(case.otherwise(lit(false)).unwrap());
        let words = ["other", "x", "y"].map(|word| Box::from(word.as_bytes()));
        assert_eq!(
            united.column_tests,
            [
                ColumnTest::new(ColumnIndex(0), Test::OneOf(Arc::from([2, 3, 5, 7, 8, 9]))),
                ColumnTest::new(ColumnIndex(1), Test::BytesOneOf(Arc::from(words))),
            ]
        );
        assert_eq!(united.row_tests.len(), 1);
    }

    /// `struct(columns) IN (structs)`, as a join on these columns hands it down.
    fn structs_in(columns: Vec<Expr>, fields: Vec<ArrayRef>, present: Option<Vec<bool>>, negated: bool) -> InListExpr {
        let arrow = schema().arrow();
        let call = datafusion::functions::core::expr_fn::r#struct(columns);
        let context = SessionContext::new();
        let call = context.create_physical_expr(call, &DFSchema::try_from(arrow.as_ref().clone()).unwrap()).unwrap();
        let names = fields.iter().enumerate();
        let names = names.map(|(place, field)| Field::new(format!("c{place}"), field.data_type().clone(), true));
        let structs = StructArray::new(names.collect::<Vec<_>>().into(), fields, present.map(NullBuffer::from));
        InListExpr::try_new_from_array(call, Arc::new(structs), negated, &arrow).unwrap()
    }

    fn translated(expression: impl PhysicalExpr) -> Predicate {
        let schema = schema();
        super::translate(&[Arc::new(expression)], &schema, &schema.arrow()).unwrap()
    }

    #[test]
    fn structs_of_a_join_on_two_columns_say_what_each_has() {
        let tests = |columns: Vec<Expr>, words: Vec<Option<&str>>, present, negated| {
            let numbers: ArrayRef = Arc::new(Int32Array::from(vec![7, 3, 7]));
            let fields = match columns.len() {
                2 => vec![numbers, Arc::new(StringViewArray::from(words)) as ArrayRef],
                _ => vec![Arc::clone(&numbers), Arc::new(StringViewArray::from(words)), numbers],
            };
            let predicate = translated(structs_in(columns, fields, present, negated));
            assert_eq!(predicate.row_tests.len(), 1);
            predicate.column_tests
        };
        let both = || vec![col("i"), col("t")];
        let listed = |numbers: &[i128]| ColumnTest::new(ColumnIndex(0), Test::OneOf(Arc::from(numbers)));
        let words = ["a", "b"].map(|word| Box::from(word.as_bytes()));
        let texts = ColumnTest::new(ColumnIndex(1), Test::BytesOneOf(Arc::from(words)));
        let some = || vec![Some("b"), Some("a"), Some("b")];
        assert_eq!(tests(both(), some(), None, false), [listed(&[3, 7]), texts.clone()]);
        assert_eq!(tests(vec![col("i"), col("t"), col("i")], some(), None, false), [listed(&[3, 7]), texts]);
        assert_eq!(tests(both(), some(), None, true), []);
        // Where nulls are equal, a null passes.
        assert_eq!(tests(both(), vec![Some("b"), None, Some("b")], None, false), [listed(&[3, 7])]);
        assert_eq!(tests(both(), vec![None; 3], Some(vec![false, true, false]), false), [listed(&[3])]);
        // In wider integers, one of which the column cannot hold.
        let wide = datafusion::logical_expr::cast(col("i"), DataType::Int64);
        let fields: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(vec![1 << 40, 5])), Arc::new(StringViewArray::from(vec![None, Some("x")]))];
        let predicate = translated(structs_in(vec![wide, col("t")], fields, None, false));
        assert_eq!(predicate.column_tests, [listed(&[5, 1 << 40])]);
    }

    #[test]
    fn hints_on_floating_point_are_column_tests_alone() {
        let list = || {
            let fields: Vec<ArrayRef> =
                vec![Arc::new(Float64Array::from(vec![0.0])), Arc::new(Int32Array::from(vec![7]))];
            structs_in(vec![col("f"), col("i")], fields, None, false)
        };
        let zeros = ColumnTest::new(ColumnIndex(4), Test::OneOf(Arc::from([-1, 0])));
        let seven = ColumnTest::new(ColumnIndex(0), Test::OneOf(Arc::from([7])));
        let written = translated(list());
        assert_eq!((written.column_tests.as_slice(), written.row_tests.len()), ([seven, zeros].as_slice(), 1));
        let hint = translated(DynamicFilterPhysicalExpr::new(vec![], Arc::new(list())));
        assert_eq!((hint.column_tests, hint.row_tests.len()), (written.column_tests, 0));
        // Without floating point the rows are tested as well, which is what a hint is for.
        let fields: Vec<ArrayRef> =
            vec![Arc::new(StringViewArray::from(vec!["x"])), Arc::new(Int32Array::from(vec![7]))];
        let list = structs_in(vec![col("t"), col("i")], fields, None, false);
        assert_eq!(translated(DynamicFilterPhysicalExpr::new(vec![], Arc::new(list))).row_tests.len(), 1);
    }

    #[test]
    fn what_nulls_pass_says_what_it_is_without_them() {
        let first_rows = |expression: Expr| {
            let predicate = predicate(expression);
            assert!(predicate.column_tests.is_empty() && predicate.row_tests.len() == 1, "{predicate:?}");
            predicate.row_tests[0].unless_null().cloned()
        };
        let unless_null =
            |column, test, is_exact| Some(UnlessNull { test: ColumnTest::new(ColumnIndex(column), test), is_exact });
        let greater = Test::Range { low: 6, high: i128::MAX };
        assert_eq!(first_rows(col("i").is_null().or(col("i").gt(lit(5)))), unless_null(0, greater.clone(), true));
        assert_eq!(first_rows(col("i").gt(lit(5)).or(col("i").is_null())), unless_null(0, greater, true));
        let equal = col("i").eq(lit(5)).and(col("t").is_null().or(col("t").gt(lit("x"))));
        let two = col("i").is_null().or(col("i").gt(lit(5))).or(equal);
        assert_eq!(first_rows(two), unless_null(0, Test::Range { low: 5, high: i128::MAX }, false));
        // Nothing is known of the first column where the other passes.
        assert_eq!(first_rows(col("i").is_null().or(col("t").gt(lit("x")))), None);
        assert_eq!(first_rows(col("i").is_null().or(col("i").gt(lit(5))).or(col("b"))), None);
    }
}
